package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// item is one of a noun.
type item interface {
	// names are those by which it is found. The first is its own, others may be shared.
	names() []string
	// owners are the Service ports that it belongs to, none where it belongs to the node.
	owners() []plan.Service
}

// noun is a kind of things that are shown: all of them have the same commands and
// flags, which is the grammar of the command line. Its file has nothing else to say.
type noun[T item] struct {
	name, short, long string
	kind              string // of what programs read, such as Frontend
	words             string // what finds some, such as "ADDRESS[:PORT]"
	columns           []column[T]
	// moving is the columns of who reads again and again, which command sets: with those of rates.
	moving []column[T]
	// read calls do with all, and may leave out what is not wanted. It does so once it has read what maps may
	// contradict each other about: then all is read again.
	read func(s *sight, do func(*T) error) error
	// compare is the order of lists; nil for that in which they are read.
	compare func(a, b T) int
	// show returns one in full, a line each; nil for the columns.
	show func(T) [][]string
	// passing is set of what comes and goes: that an address has none is no error.
	passing bool
	// namespaced is set of what Services own.
	namespaced bool
	// paths is set of what sockets and packets have.
	paths bool
}

// command returns the noun's command, with list, show and more.
func (n noun[T]) command(e *env, more ...*cobra.Command) *cobra.Command {
	return n.untyped().command(e, more...)
}

// untyped returns the noun as its commands see it, which are compiled once for all nouns.
func (n noun[T]) untyped() *grammar {
	g := &grammar{
		name: n.name, short: n.short, long: n.long, kind: n.kind, words: n.words, passing: n.passing, namespaced: n.namespaced, paths: n.paths,
	}
	g.read = func(s *sight, do func(*item) error) error {
		return n.read(s, func(one *T) error {
			i := any(one).(item)
			return do(&i)
		})
	}
	if n.compare != nil {
		g.compare = func(a, b item) int { return n.compare(of[T](a), of[T](b)) }
	}
	for _, c := range n.columns {
		one := column[item]{c.title, func(i item) any { return c.of(of[T](i)) }, c.wide, c.rated}
		g.moving = append(g.moving, one)
		if !c.rated {
			g.columns = append(g.columns, one)
		}
	}
	if n.show != nil {
		g.show = func(i item) [][]string { return n.show(of[T](i)) }
	}
	return g
}

// inMotion is the grammar with all columns.
func (n *grammar) inMotion() *grammar {
	m := *n
	m.columns = n.moving
	return &m
}

// of returns what an item of a noun is.
func of[T any](i item) T { return *any(i).(*T) }

// grammar is the commands of a noun.
type grammar noun[item]

// sight is what nouns are read from.
type sight struct {
	*datapath.Reader
	wanted wanted
	states datapath.FlowState // of flows, see isShown
	env    *env
	rates  *rates              // nil for who reads once
	less   func(a, b item) int // the order that is asked for, nil for that of the noun
	full   bool                // all is asked for that is known of each, not what stands in a short line

	sockets datapath.SocketList // kept from one reading to the next
}

// Close lets go of what is kept.
func (s *sight) Close() { s.sockets.Close() }

// listing is the flags of list.
type listing struct {
	namespace string
	all       bool
	watch     bool
	sortBy    string
	path      flowPath
	states    datapath.FlowState
	over      bool
}

// aliases are names of nouns as kubectl has them.
var aliases = map[string][]string{
	"service": {"services", "svc"}, "frontend": {"frontends"}, "backend": {"backends"}, "table": {"tables"}, "flow": {"flows"}, "affinity": {"affinities"},
	"range": {"ranges"}, "device": {"devices"}, "peer": {"peers"}, "map": {"maps"}, "problem": {"problems"},
}

// command returns the noun's command. Alone it lists, as in bpftool.
func (n *grammar) command(e *env, more ...*cobra.Command) *cobra.Command {
	list := n.lister(e, "list ["+n.words+"]", "List "+n.short)
	show := &cobra.Command{
		Use: "show " + n.words, Short: "Show one in full", Long: n.long,
		Args: n.oneName, ValidArgsFunction: n.complete(e),
	}
	l := &listing{}
	l.addNamespace(show, n.namespaced)
	show.RunE = func(cmd *cobra.Command, args []string) error { return n.showOne(cmd, e, l, args[0]) }
	cmd := n.lister(e, n.name, capitalized(n.short))
	cmd.Aliases = aliases[n.name]
	cmd.Args = command.NoSuchCommand
	cmd.AddCommand(list, show)
	cmd.AddCommand(more...)
	return cmd
}

// lister returns a command that lists.
func (n *grammar) lister(e *env, use, short string) *cobra.Command {
	l := &listing{}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: n.long,
		Args: atMostOne, ValidArgsFunction: n.complete(e),
		RunE: func(cmd *cobra.Command, args []string) error { return n.list(cmd, e, l, args) },
	}
	l.addNamespace(cmd, n.namespaced)
	cmd.Flags().BoolVarP(&l.watch, "watch", "w", false, "go on, and show what changes as it does")
	cmd.Flags().StringVar(&l.sortBy, "sort-by", "", "title of the column to sort by: largest number first, texts from a to z, unknown last")
	command.CompleteFlag(cmd, "sort-by", n.titles())
	if n.paths {
		l.addFlows(cmd, "only flows in these states, such as closing,closed (default: all that are not over)")
		cmd.Flags().BoolVar(&l.over, "all", false, "also flows that are over: closed, broken, expired")
	}
	return cmd
}

func (l *listing) addFlows(cmd *cobra.Command, states string) {
	cmd.Flags().Var(&choice[datapath.FlowState]{&l.states, datapath.FlowStates[:], -1}, "state", states)
	cmd.Flags().Var(oneOf(&l.path, allPaths, allPaths, pathSocket, pathPacket), "path", "all, or only what is balanced by its socket, or by its packets")
}

func (l *listing) addNamespace(cmd *cobra.Command, namespaced bool) {
	if !namespaced {
		return
	}
	cmd.Flags().StringVarP(&l.namespace, "namespace", "n", "", "namespace of the Services (default: all of them)")
	cmd.Flags().BoolVarP(&l.all, "all-namespaces", "A", false, "Services of all namespaces, as without --namespace")
	command.OneOfBoth(cmd, "namespace", "all-namespaces")
}

// atMostOne refuses more than one argument.
func atMostOne(cmd *cobra.Command, args []string) error {
	return command.NoArgs(cmd, args[min(1, len(args)):])
}

// oneName wants one argument.
func (n *grammar) oneName(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which %s? Write %s; %s list shows what there is", n.name, n.words, cmd.Parent().CommandPath())
	}
	return atMostOne(cmd, args)
}

func (n *grammar) list(cmd *cobra.Command, e *env, l *listing, args []string) error {
	var again *rates
	shown := n
	if l.watch {
		again, shown = &rates{}, n.inMotion()
	}
	less, err := shown.order(l.sortBy)
	if err != nil {
		return err
	}
	limitGarbage(garbage)
	s := newSight(e, l, args)
	s.rates, s.less = again, less
	defer s.Close()
	if l.watch {
		return n.follow(cmd.Context(), e, cmd.OutOrStdout(), func() ([]item, error) { return n.collect(s) })
	}
	return e.Print(cmd.OutOrStdout(), n.table(e.Output, func(do func(item) error) error { return n.find(s, n.mayBeEmpty, do) }))
}

// garbage is how much of the memory in use may be waste, in percent: of 10,000 Services each look leaves 15 MB, and
// commands run beside what the node is for.
const garbage = 25

// limitGarbage has no more waste than that, and less where that was asked for before: a sysdump runs lists.
func limitGarbage(percent int) {
	if before := debug.SetGCPercent(percent); before >= 0 {
		debug.SetGCPercent(min(percent, before))
	}
}

// newSight returns what the flags and the word of a list ask for.
func newSight(e *env, l *listing, args []string) *sight {
	s := &sight{wanted: wanted{namespace: l.namespace, path: l.path}, states: l.states, env: e, full: e.ShowsAll() || l.sortBy != "" || len(args) > 0}
	if l.over && s.states == "" {
		s.states = anyState
	}
	if len(args) > 0 {
		s.wanted.word = args[0]
	}
	return s
}

func (n *grammar) showOne(cmd *cobra.Command, e *env, l *listing, word string) error {
	s := &sight{wanted: wanted{word: word, namespace: l.namespace}, states: anyState, env: e, full: true}
	defer s.Close()
	items, err := n.collect(s)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return n.nothingIs(word)
	}
	if err := n.oneMeant(items, s.wanted); err != nil {
		return err
	}
	if e.ForPrograms() {
		return e.Print(cmd.OutOrStdout(), n.table(e.Output, inTurn(items)))
	}
	var t command.Table
	for i, one := range items {
		if i > 0 {
			t.Rows = append(t.Rows, []string{""})
		}
		t.Rows = append(t.Rows, n.inFull(one)...)
	}
	return e.Print(cmd.OutOrStdout(), t)
}

// inFull returns all that is said of one, a line each.
func (n *grammar) inFull(one item) (rows [][]string) {
	if n.show != nil {
		return n.show(one)
	}
	for _, c := range n.columns {
		title := inLine(c.title)
		for _, line := range lines(c.of(one)) {
			rows = append(rows, []string{title, line})
			title = ""
		}
	}
	if of, ok := one.(interface{ parts() [][]string }); ok { // of numbers above
		rows = append(rows, of.parts()...)
	}
	return rows
}

// inLine returns a title as it stands before a value: a unit keeps its case.
func inLine(title string) string {
	what, unit, _ := strings.Cut(title, " ")
	if units[unit] {
		return strings.ToLower(what) + " " + unit
	}
	return strings.ToLower(title)
}

// units are those that titles end with.
var units = map[string]bool{"B": true, "KiB": true}

// fullNames returns the names with a namespace that a word stands for, of an item or of its Services.
func fullNames(one item, w wanted) (names []string) {
	if of, ok := one.(interface{ called(word string) string }); ok && of.called(w.word) != "" {
		return []string{of.called(w.word)}
	}
	if slices.Contains(one.names(), w.word) {
		return nil
	}
	for _, s := range one.owners() {
		if w.owns(s) {
			names = append(names, s.ServiceName.String())
		}
	}
	return names
}

// oneMeant returns an error where a word names something in several namespaces.
func (n *grammar) oneMeant(items []item, w wanted) error {
	var meant []string
	for _, one := range items {
		for _, name := range fullNames(one, w) {
			if !slices.Contains(meant, name) {
				meant = append(meant, name)
			}
		}
	}
	if len(meant) < 2 {
		return nil
	}
	slices.Sort(meant)
	return fmt.Errorf("%s is any of %s: write one of them, or its namespace with -n", lb.Quote(w.word), strings.Join(meant[:min(len(meant), 5)], ", "))
}

// nothingIs says that a word means nothing.
func (n *grammar) nothingIs(word string) error {
	return fmt.Errorf("no %s is %s: write %s, as headgate %s list shows them", n.name, lb.Quote(word), n.words, n.name)
}

// complete returns what a person may mean by the word that begins so.
func (n *grammar) complete(e *env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		s := &sight{env: e}
		defer s.Close()
		err := e.look(func(r *datapath.Reader) error {
			s.Reader = r
			err := n.read(s, func(one *item) error {
				words = append(words, (*one).names()[0])
				for _, s := range (*one).owners() {
					words = append(words, s.ServiceName.String())
				}
				return nil
			})
			return err
		})
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		slices.Sort(words)
		words = slices.DeleteFunc(slices.Compact(words), func(w string) bool { return !strings.HasPrefix(w, begun) })
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// look calls do with a reader of what is pinned.
func (e *env) look(do func(*datapath.Reader) error) error {
	err := datapath.Look(e.open, do)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("read %s: %w; run it with sudo", e.bpfRoot, fs.ErrPermission)
	}
	return err
}

// mayRead returns an error where this user may not see what is pinned, whether or not something is.
func (e *env) mayRead() error {
	if err := e.look(func(*datapath.Reader) error { return nil }); errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// open returns a reader of what is pinned.
func (e *env) open() (*datapath.Reader, error) { return datapath.Inspect(e.bpfRoot) }
