// Package kip compares KIP.md and README.md with the code, both ways. It stands here because
// a page that names everything is of no layer: the test imports all of them.
// The metrics are compared in gtc/service, which has their registry.
package kip

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const root = "../../../"

func TestKIPNamesEverything(t *testing.T) {
	kip := read(t, "KIP.md")
	t.Run("RPCs", func(t *testing.T) { rpcs(t, kip) })
	t.Run("records", func(t *testing.T) { records(t, kip.section("### Record formats")) })
	t.Run("numbers", func(t *testing.T) { numbers(t, kip) })
	t.Run("error codes", func(t *testing.T) { errorCodes(t, kip.section("### Error codes")) })
	t.Run("configuration", func(t *testing.T) { keys(t, kip.section("### Configuration")) })
	t.Run("answers to EndTxn", func(t *testing.T) { answers(t, kip.section("### Participants")) })
	t.Run("clauses", func(t *testing.T) { clauses(t, kip) })
}

// TestREADMENamesEveryDependency: every module that is imported, and no other.
func TestREADMENamesEveryDependency(t *testing.T) {
	var modules []string // longest first: franz-go/pkg/kmsg before franz-go
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+) v\S+`).FindAllStringSubmatch(string(read(t, "go.mod")), -1) {
		modules = append(modules, m[1])
	}
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) })
	var imported, listed []string
	walk(t, func(path, text string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, spec := range f.Imports {
			pkg := strings.Trim(spec.Path.Value, `"`) + "/"
			i := slices.IndexFunc(modules, func(m string) bool { return strings.HasPrefix(pkg, m+"/") })
			if i >= 0 && !slices.Contains(imported, modules[i]) {
				imported = append(imported, modules[i])
			}
		}
	})
	for _, row := range read(t, "README.md").section("## Dependencies").table(t, "module") {
		for name := range strings.SplitSeq(row[0], ", ") {
			if !strings.Contains(strings.Split(name, "/")[0], ".") {
				name = "github.com/" + name
			}
			listed = append(listed, name)
		}
	}
	slices.Sort(imported)
	slices.Sort(listed)
	same(t, "modules", listed, imported)
}

// walk calls f for every Go file and text of the repository.
func walk(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".md", ".txt"}, filepath.Ext(path)):
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil {
			f(path, string(b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// --- the page ---------------------------------------------------------------

type page string

func read(t *testing.T, name string) page {
	t.Helper()
	b, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}
	return page(b)
}

// section is what stands below a heading, up to the next of its rank or higher.
func (p page) section(heading string) page {
	_, rest, found := strings.Cut(string(p), "\n"+heading+"\n")
	if !found {
		panic("no section " + heading)
	}
	rank := strings.Count(strings.Fields(heading)[0], "#")
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, rank)).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return page(rest)
}

// table is the rows of the table whose first column has this heading.
func (p page) table(t *testing.T, first string) [][]string {
	t.Helper()
	var rows [][]string
	for line := range strings.Lines(string(p)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case rows != nil && !strings.HasPrefix(line, "|"):
			return rows[2:]
		case rows != nil || strings.HasPrefix(line, "|") && cells[0] == first:
			rows = append(rows, cells)
		}
	}
	if len(rows) < 3 {
		t.Fatalf("no table %q", first)
	}
	return rows[2:]
}

func same(t *testing.T, what string, kip, code []string) {
	t.Helper()
	if !slices.Equal(kip, code) {
		t.Errorf("%s\n  KIP.md: %s\n  code:   %s", what, strings.Join(kip, " | "), strings.Join(code, " | "))
	}
}

// --- messages and records -----------------------------------------------------

type field struct {
	Name, Type       string
	NullableVersions string
	Default          any
	TaggedVersions   string
	Tag              *int
	About            string
	Fields           []field
}

type schema struct {
	APIKey        int16 `json:"apiKey"`
	Type          string
	Name          string
	Fields        []field
	CommonStructs []struct {
		Name   string
		Fields []field
	}
}

func readSchema(t *testing.T, path string) schema {
	t.Helper()
	// Kafka's message format is JSON with line comments.
	b := regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAllString(string(read(t, path)), "")
	var s schema
	if err := json.Unmarshal([]byte(b), &s); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
}

// write is a field as KIP.md has it. A struct that has a table of its own is
// named, any other is written out.
func (f field) write(p page) string {
	typ := f.Type
	if f.Fields != nil && !strings.Contains(string(p), "\n| "+strings.TrimPrefix(typ, "[]")+" |") {
		var in []string
		for _, g := range f.Fields {
			in = append(in, g.write(p))
		}
		typ = "[]{" + strings.Join(in, ", ") + "}"
	}
	if f.NullableVersions != "" {
		typ = "nullable " + typ
	}
	if f.Default != nil && f.Default != "null" {
		typ += fmt.Sprintf(" default %v", f.Default)
	}
	if f.Tag != nil {
		typ += fmt.Sprintf(" tag %d", *f.Tag)
	}
	return f.Name + " " + typ
}

func (p page) fields(t *testing.T, first string) []string {
	t.Helper()
	var all []string
	for _, row := range p.table(t, first) {
		names, types := strings.Split(row[0], ", "), []string{row[1]}
		if len(names) > 1 {
			types = strings.Split(row[1], ", ")
		}
		if len(names) != len(types) {
			t.Errorf("%s: %d fields have %d types", row[0], len(names), len(types))
			continue
		}
		for i := range names {
			all = append(all, names[i]+" "+types[i])
		}
	}
	return all
}

func compare(t *testing.T, p page, first string, fs []field) {
	t.Helper()
	var code []string
	for _, f := range fs {
		code = append(code, f.write(p))
		if name := strings.TrimPrefix(f.Type, "[]"); f.Fields != nil && strings.Contains(string(p), "\n| "+name+" |") {
			compare(t, p, name, f.Fields)
		}
	}
	same(t, first, p.fields(t, first), code)
}

func rpcs(t *testing.T, kip page) {
	t.Helper()
	var code, have []string
	for _, api := range wire.APIs() {
		for _, kind := range []string{"Request", "Response"} {
			s := readSchema(t, "wire/schema/"+api.Name+kind+".json")
			if s.APIKey != api.Key || s.Name != api.Name+kind {
				t.Errorf("%s: the schema is of %s, key %d", api.Name, s.Name, s.APIKey)
			}
			if api.Key < 1000 { // Kafka's own, of which the KIP describes the change only
				continue
			}
			fs := s.Fields
			if kind == "Response" {
				if fs[0].write("") != "ThrottleTimeMs int32" {
					t.Errorf("%s begins with %s", s.Name, fs[0].Name)
				}
				fs = fs[1:]
			}
			compare(t, kip.section(fmt.Sprintf("#### %s (%d)", api.Name, api.Key)), strings.ToLower(kind), fs)
		}
		if api.Key >= 1000 {
			code = append(code, fmt.Sprintf("%d %s", api.Key, api.Name))
		} else if !strings.Contains(string(kip), fmt.Sprintf("%s version %d", api.Name, api.MinVersion)) {
			t.Errorf("KIP.md does not name %s version %d", api.Name, api.MinVersion)
		}
	}
	for _, row := range kip.section("### RPCs").table(t, "key") {
		have = append(have, row[0]+" "+row[1])
	}
	same(t, "RPCs", have, code)
	files, err := filepath.Glob(root + "wire/schema/*.json")
	if err != nil || len(files) != 2*len(wire.APIs()) {
		t.Errorf("%d schemas for %d RPCs (%v)", len(files), len(wire.APIs()), err)
	}
}

func records(t *testing.T, p page) {
	t.Helper()
	files, err := filepath.Glob(root + "txnlog/schema/*.json")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d schemas of records (%v)", len(files), err)
	}
	types := make(map[string][]string)
	for _, row := range p.table(t, "type") {
		types[row[0]] = row[1:]
	}
	for _, path := range files {
		s := readSchema(t, strings.TrimPrefix(path, root))
		row := types[fmt.Sprint(s.APIKey)]
		if row == nil || !strings.Contains(strings.Join(row, " "), s.Name) {
			t.Errorf("record type %d of KIP.md does not name %s", s.APIKey, s.Name)
			continue
		}
		switch {
		case s.Type == "coordinator-value":
			compare(t, p, s.Name, s.Fields)
		case len(s.Fields) == 1 && !strings.Contains(row[0], "`"+s.Fields[0].write(p)+"`"):
			t.Errorf("%s of KIP.md is %q, and the schema has %s", s.Name, row[0], s.Fields[0].write(p))
		case len(s.Fields) == 0 && !strings.HasPrefix(row[0], s.Name+": nothing"):
			t.Errorf("%s of KIP.md is %q, and the schema has no field", s.Name, row[0])
		}
		for _, c := range s.CommonStructs {
			compare(t, p, c.Name, c.Fields)
		}
	}
}

// --- states and other numbers -------------------------------------------------

// cell is the last cell of the row whose first is name.
func (p page) cell(t *testing.T, table, name string) string {
	t.Helper()
	for _, row := range p.table(t, table) {
		if slices.Contains(strings.Split(row[0], ", "), name) {
			return row[len(row)-1]
		}
	}
	t.Errorf("table %q has no row %s", table, name)
	return ""
}

func numbers(t *testing.T, kip page) {
	t.Helper()
	var durable, all []string
	for s := txnlog.StateEmpty; s <= txnlog.StateDead; s++ {
		durable = append(durable, fmt.Sprintf("%d %s", s, gtc.NameOf(s)))
	}
	for _, n := range gtc.StateNames() {
		all = append(all, string(n))
	}
	log := kip.section("### Record formats")
	end := kip.section("#### EndGlobalTxn (1001)")
	states := kip.section("### States")
	const participants = "0 pending, 1 complete, 2 heuristic commit, 3 heuristic abort, 4 heuristic unknown"
	if wire.ParticipantPending != 0 || wire.ParticipantComplete != 1 || wire.ParticipantHeuristicCommit != 2 ||
		wire.ParticipantHeuristicAbort != 3 || wire.ParticipantHeuristicUnknown != 4 ||
		wire.OutcomeUnknown != 0 || wire.OutcomeCommitted != 1 || wire.OutcomeAborted != 2 ||
		wire.ResolveAbort != 0 || wire.ResolveRetry != 1 || wire.ResolveForget != 2 || wire.ResolveGiveUp != 3 {
		t.Error("a number of package wire has changed: write it here and into KIP.md")
	}
	for _, c := range []struct{ what, kip, code string }{
		{"durable states", log.cell(t, "GlobalTransactionLogValue", "State"), strings.Join(durable, ", ")},
		{"states", kip.section("#### DescribeGlobalTransactions (1002)").cell(t, "GlobalTransaction", "State"), strings.Join(all, ", ")},
		{"states of a recorded participant", log.cell(t, "GlobalTransactionParticipant", "State"), participants},
		{"states of an answered participant", end.cell(t, "response", "Participants"), participants},
		{"outcomes", end.cell(t, "response", "Outcome"), "0 unknown, 1 committed, 2 aborted"},
		{"actions", kip.section("#### ResolveGlobalTransaction (1004)").cell(t, "request", "Action"), "0 abort, 1 retry, 2 forget, 3 give up"},
	} {
		if !strings.Contains(c.kip, c.code) {
			t.Errorf("%s: KIP.md has %q, the code %q", c.what, c.kip, c.code)
		}
	}
	drawn := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^  (\S+) --> (\w+|\[\*\])`).FindAllStringSubmatch(string(states), -1) {
		drawn[m[1]], drawn[m[2]] = true, true
	}
	delete(drawn, "[*]")
	for s := txnlog.StateEmpty; s <= txnlog.StateDead; s++ {
		if !drawn[string(gtc.NameOf(s))] {
			t.Errorf("the state diagram lacks %s", gtc.NameOf(s))
		}
		delete(drawn, string(gtc.NameOf(s)))
	}
	if len(drawn) > 0 {
		t.Errorf("the state diagram has %v, which are no states", drawn)
	}
}

func errorCodes(t *testing.T, p page) {
	t.Helper()
	var have, code []string
	for _, row := range p.table(t, "code") {
		have = append(have, strings.Join(row[:3], " "))
	}
	for _, e := range wire.Errors() {
		code = append(code, fmt.Sprintf("%d %s %s", e.Code, e.Name, map[bool]string{true: "yes", false: "no"}[e.Retriable]))
	}
	same(t, "error codes", have, code)

	_, used, found := strings.Cut(string(p), "Used as they are: ")
	if !found {
		t.Fatal("KIP.md does not say which error codes of Kafka are used")
	}
	known := make(map[string]bool)
	for c := int16(-1); c < 200; c++ {
		if e := kerr.TypedErrorForCode(c); e != nil {
			known[e.Message] = true
		}
	}
	names := regexp.MustCompile(`[A-Z]+(?:_[A-Z]+)+`).FindAllString(used, -1)
	for _, n := range names {
		if !known[n] {
			t.Errorf("Kafka has no error code %s", n)
		}
	}
	// What the coordinator and its front answer, by the identifiers in their
	// sources.
	used = strings.Join(names, " ")
	for _, path := range []string{"gtc/service/rpc.go", "broker/coordinator.go"} {
		for _, m := range regexp.MustCompile(`kerr\.(\w+)\.Code`).FindAllStringSubmatch(string(read(t, path)), -1) {
			name := strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(strings.ReplaceAll(m[1], "ID", "Id"), "${1}_${2}"))
			if !slices.Contains(names, name) {
				t.Errorf("%s answers %s, which is not among those that KIP.md names: %s", path, name, used)
			}
		}
	}
}

// --- configuration ------------------------------------------------------------

func keys(t *testing.T, p page) {
	t.Helper()
	have := make(map[string]string) // as "type default"
	for _, row := range p.table(t, "key") {
		have[strings.Trim(row[0], "`")] = row[1] + " " + row[2]
	}
	const kafkas = "Kafka's"
	for list, prefixes := range map[string][]string{
		"Kafka's client keys: ":   {"gtc.cluster." + config.Alias + ".", "gtc.home."},
		"Kafka's listener keys: ": {"", "listener.name." + config.ListenerName + "."},
	} {
		_, names, _ := strings.Cut(string(p), list)
		names, _, _ = strings.Cut(names, ". ")
		for _, m := range regexp.MustCompile("`([a-z.]+)`").FindAllStringSubmatch(names, -1) {
			for _, prefix := range prefixes {
				have[prefix+m[1]] = kafkas
			}
		}
	}
	_, besides, _ := strings.Cut(string(p), "The reference's node has these besides")
	besides, _, _ = strings.Cut(besides, "\n")
	for _, m := range regexp.MustCompile("`([a-z.<>]+)`").FindAllStringSubmatch(besides, -1) {
		have[m[1]] = ""
	}
	for _, k := range config.Keys() {
		def := k.Default
		if k.EmbeddedDefault != "" {
			def += "; " + k.EmbeddedDefault
		}
		got, found := have[k.Name]
		delete(have, k.Name)
		switch want := strings.TrimSpace(string(k.Type) + " " + def); {
		case !found:
			t.Errorf("KIP.md has no key %s", k.Name)
		case got == "" && (k.Role == config.GTCRole || k.Role == config.GTCOnly):
			t.Errorf("%s is the coordinator's: describe it", k.Name)
		case got != "" && got != kafkas && strings.TrimSpace(got) != want:
			t.Errorf("%s is %q in KIP.md and %q in the code", k.Name, got, want)
		}
	}
	for name := range have {
		t.Errorf("KIP.md has the key %s, the code has not", name)
	}
	for _, row := range read(t, "README.md").section("## Configuration").table(t, "key") {
		for _, m := range regexp.MustCompile("`([a-z.<>-]+)`").FindAllStringSubmatch(row[0], -1) {
			if !slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Name == m[1] }) {
				t.Errorf("README.md has the key %s, the code has not", m[1])
			}
		}
	}
}

// --- participants -------------------------------------------------------------

func answers(t *testing.T, p page) {
	t.Helper()
	words := map[verdict.Verdict]string{
		verdict.Done: "done", verdict.Retry: "again", verdict.Alarm: "again, alarm", verdict.Prove: "prove",
	}
	rows := p.table(t, "answer")
	last := rows[len(rows)-1]
	same(t, "the last row", last[:2], []string{"any other, or none", "again"})
	rows = rows[:len(rows)-1]
	if len(rows) != len(verdict.Answers) {
		t.Fatalf("KIP.md has %d answers, the code %d", len(rows), len(verdict.Answers))
	}
	for i, a := range verdict.Answers {
		name := fmt.Sprintf("%s (%d)", a.Name, a.Code)
		if a.AbortV5 != a.CommitV5 || a.CommitV4 != a.CommitV5 || a.AbortV4 != a.CommitV5 {
			t.Errorf("%s: KIP.md has one column for all four ends", name)
		}
		same(t, name, rows[i], []string{name, words[a.CommitV5], a.Means})
	}
}

// --- clauses ------------------------------------------------------------------

var clause = regexp.MustCompile(`\bC-[A-Z]+-\d+\b`)

func clauses(t *testing.T, kip page) {
	t.Helper()
	var defined, listed []string
	for _, m := range regexp.MustCompile(`(?m)^- \*\*(C-[A-Z]+-\d+)\.\*\* \*(?:R\d: )?(.+?)\.\*`).FindAllStringSubmatch(string(kip), -1) {
		defined = append(defined, m[1]+" "+m[2])
	}
	for _, row := range kip.section("## List of clauses").table(t, "clause") {
		listed = append(listed, row[0]+" "+regexp.MustCompile(`^R\d: `).ReplaceAllString(row[1], ""))
	}
	for _, c := range defined {
		if !slices.Contains(listed, c) {
			t.Errorf("%s is not in the list", c)
		}
	}
	for _, c := range listed {
		if !slices.Contains(defined, c) {
			t.Errorf("%s is in the list only", c)
		}
	}
	walk(t, func(path, text string) {
		for _, c := range clause.FindAllString(text, -1) {
			if !slices.ContainsFunc(defined, func(d string) bool { return strings.HasPrefix(d, c+" ") }) {
				t.Errorf("%s speaks of %s, which is no clause", path, c)
			}
		}
	})
}
