package manifest

import (
	"errors"
	"testing"
)

func TestOnlyDifferencesArePassedOn(t *testing.T) {
	f := newFolder()
	if !f.tell() || f.updates != 1 {
		t.Error("the first update must come, even if it is empty")
	}
	text := docs(serviceYAML("web", 80), serviceYAML("api", 90))
	f.save("a.yaml", text)
	if f.save("a.yaml", "# a comment\n"+text) {
		t.Error("a comment is passed on")
	}
	f.state.set(f.state.files["a.yaml"], f.dec.read([]byte(docs(serviceYAML("web", 80), serviceYAML("api", 91))), content{}))
	u, ok := f.state.next()
	if !ok || len(u.Services) != 1 || u.Services[serviceName("api")] == nil || u.Node != nil {
		t.Errorf("got %v, want only api", u)
	}
}

func TestUnchangedDocumentsAreNotDecodedAgain(t *testing.T) {
	dec := newFolder().dec
	one := dec.read([]byte(docs(serviceYAML("web", 80), serviceYAML("api", 90))), content{})
	two := dec.read([]byte(docs("# moved\n"+nodeYAML, serviceYAML("web", 80), serviceYAML("api", 91))), one)
	if two.documents[1].document != one.documents[0].document {
		t.Error("the unchanged document was decoded again")
	}
	if two.documents[2].document == one.documents[1].document {
		t.Error("the changed document was not decoded")
	}
}

func TestRemovedObjectsAndFilesGo(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", docs(serviceYAML("web", 80), serviceYAML("api", 90), sliceYAML("web-1", "web", "10.244.1.1")))
	f.save("a.yaml", docs(serviceYAML("web", 80), sliceYAML("web-1", "web", "10.244.1.1")))
	if f.port("api") != 0 || f.port("web") != 80 {
		t.Errorf("got %v", f.services)
	}
	f.remove("a.yaml")
	if len(f.services) != 0 || len(f.slices) != 0 {
		t.Errorf("got %v, %v", f.services, f.slices)
	}
}

func TestAServiceThatBecomesHeadlessGoesAndStaysGone(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", serviceYAML("web", 80))
	f.save("a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: None}\n")
	if f.port("web") != 0 {
		t.Error("it is still there")
	}
	f.save("a.yaml", serviceYAML("web", 0))
	f.wantFrozen(t) // its last good version is: nothing
}

func TestABrokenDocumentKeepsWhatTheFileHad(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", docs(serviceYAML("web", 80), serviceYAML("api", 90)))
	f.save("a.yaml", docs(serviceYAML("web", 81), "kind: [\n", serviceYAML("new", 70)))
	if f.port("web") != 81 || f.port("api") != 90 || f.port("new") != 70 || !f.partial {
		t.Errorf("got %v", f.services)
	}
	f.save("a.yaml", serviceYAML("web", 81))
	if f.port("api") != 0 || f.partial {
		t.Errorf("mended, but got %v", f.services)
	}
}

func TestOfTwoFilesTheFirstCounts(t *testing.T) {
	f := newFolder()
	f.save("b.yaml", serviceYAML("web", 82))
	f.save("a.yaml", docs("# the same\n"+nodeYAML, serviceYAML("web", 81)))
	f.wantSaid(t, "dir/b.yaml: Service default/web: is in dir/a.yaml too, and that one counts; remove it from one of them")
	if f.port("web") != 81 {
		t.Errorf("got %d", f.port("web"))
	}
	f.save("b.yaml", serviceYAML("web", 83))
	if f.port("web") != 81 {
		t.Errorf("the second file saved last: got %d", f.port("web"))
	}
	f.save("b.yaml", serviceYAML("web", 82))
	f.save("a.yaml", serviceYAML("web", 0))
	if f.port("web") != 81 {
		t.Errorf("a bad version in the first file: got %d, want its last good one", f.port("web"))
	}
	f.remove("a.yaml")
	f.wantSaid(t)
	if f.port("web") != 82 {
		t.Errorf("without the first file: got %d", f.port("web"))
	}
}

func TestAVersionThatWasNeverGoodDoesNotCountAgainstAGoodOne(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", serviceYAML("web", 0))
	f.wantFrozen(t, "web")
	f.save("b.yaml", serviceYAML("web", 82))
	f.wantFrozen(t)
	if f.port("web") != 82 {
		t.Errorf("got %d", f.port("web"))
	}
}

func TestAFileThatIsBeingRenamedIsNoDuplicate(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", serviceYAML("web", 80))
	f.state.vanish(f.state.files["a.yaml"], true)
	f.save("b.yaml", serviceYAML("web", 80))
	f.wantSaid(t)
	f.remove("a.yaml")
	// The second update says which file the Service is in now.
	if f.port("web") != 80 || f.updates != 2 {
		t.Errorf("got port %d after %d updates", f.port("web"), f.updates)
	}
}

func TestAFileThatCannotBeReadKeepsItsObjects(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", serviceYAML("web", 80))
	f.state.fail(f.state.files["a.yaml"], unreadable("dir/a.yaml", errors.New("input/output error")))
	f.tell()
	f.wantSaid(t, "dir/a.yaml: cannot be read: input/output error; make it readable for the agent, or remove it")
	if f.port("web") != 80 || !f.partial {
		t.Errorf("got %v, partial %v", f.services, f.partial)
	}
	f.save("a.yaml", serviceYAML("web", 80))
	f.wantSaid(t)
}

func TestAGoodVersionStaysWhereABadOneInAnotherFileIsLeft(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", serviceYAML("web", 80))
	f.save("b.yaml", serviceYAML("web", 0))
	f.remove("a.yaml")
	if f.port("web") != 80 {
		t.Errorf("got port %d, want the last good one", f.port("web"))
	}
	f.wantFrozen(t)
	f.save("b.yaml", serviceYAML("web", 82))
	if f.port("web") != 82 {
		t.Errorf("mended, but got port %d", f.port("web"))
	}
}
