package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// A file may be nothing but mistakes: what is kept of them does not grow with it,
// and what is good of the file is in force.
func TestOfAFileOfMistakesTenAreToldAndTheRestCounted(t *testing.T) {
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "a: [%d\n---\n", i)
	}
	text.WriteString(serviceYAML("web", 80))
	f := newFolder()
	f.save("a.yaml", text.String())
	if f.services[serviceName("web")] == nil {
		t.Error("the good Service is not in force")
	}
	problems := f.state.files["a.yaml"].problems
	if len(problems) != lb.MostProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	if got, want := problems[lb.MostProblems].Error(), "dir/a.yaml: has 19990 more problems; mend the others first"; got != want {
		t.Errorf("the last problem is %q, want %q", got, want)
	}
	c := f.state.files["a.yaml"].content
	if n := len(c.documents) + len(c.byText); n > 4*lb.MostProblems {
		t.Errorf("%d documents are kept of mistakes", n)
	}

	f.save("a.yaml", docs("a: [1\n", "a: [2\n", serviceYAML("web", 80))) // once the others are mended
	if problems := f.state.files["a.yaml"].problems; len(problems) != 2 {
		t.Errorf("problems that stay: %v", problems)
	}
}

func TestOfObjectsThatTwoFilesHaveTenAreToldForEachFile(t *testing.T) {
	var text strings.Builder
	for i := range 50 {
		text.WriteString(serviceYAML(fmt.Sprint("web-", i), 80) + "---\n")
	}
	f := newFolder()
	f.save("a.yaml", text.String())
	f.save("b.yaml", text.String())
	problems := f.state.duplicated()
	if len(problems) != lb.MostProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	if got, want := problems[lb.MostProblems].Error(), "dir/b.yaml: has 40 more problems; mend the others first"; got != want {
		t.Errorf("the last problem is %q, want %q", got, want)
	}
}
