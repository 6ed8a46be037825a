package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
)

var defined = regexp.MustCompile(`(?m)^- \*\*(C-[A-Z]+-\d+)\.\*\*`)

func clauses(t *testing.T) (all []string) {
	t.Helper()
	kip, err := os.ReadFile("../KIP.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range defined.FindAllStringSubmatch(string(kip), -1) {
		all = append(all, m[1])
	}
	return all
}

func TestEveryClauseHasACaseOrATest(t *testing.T) {
	by := conformance.ClauseCases()
	for _, c := range clauses(t) {
		inside, ok := conformance.Insides[c]
		if len(by[c]) > 0 == ok {
			t.Errorf("%s has %d cases, and is tested from inside: %t", c, len(by[c]), ok)
		}
		for dir, names := range inside.Tests {
			for _, name := range names {
				if !hasTest(t, dir, name) {
					t.Errorf("%s: there is no %s in %s", c, name, dir)
				}
			}
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {\n")
	})
}

func TestCasesAreWellFormed(t *testing.T) {
	kip := clauses(t)
	id := regexp.MustCompile(`^(WIRE|DISC|LIFE|FENCE|TIME|RECO|HEUR|SEC|INTER|FAULT)-\d\d$`)
	seen, titles := map[string]bool{}, map[string]string{}
	all := conformance.Cases()
	if len(all) < 120 {
		t.Errorf("%d cases", len(all))
	}
	for _, c := range all {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("%s is no id, or there twice", c.ID)
		}
		seen[c.ID] = true
		if was := titles[c.Title]; was != "" {
			t.Errorf("%s has the title of %s", c.ID, was)
		}
		titles[c.Title] = c.ID
		if c.Title == "" || c.Means == "" || c.Run == nil || len(c.Clauses) == 0 || len(c.Wrong) == 0 {
			t.Errorf("%s lacks a title, a meaning, a function, a clause or a wrong target", c.ID)
		}
		for _, clause := range c.Clauses {
			if !slices.Contains(kip, clause) {
				t.Errorf("%s tests %s, which KIP.md does not have", c.ID, clause)
			}
		}
		for i, w := range c.Wrong {
			if w.Text == "" || slices.ContainsFunc(c.Wrong[:i], func(v wrong.Fault) bool { return v.Text == w.Text }) {
				t.Errorf("%s has a wrong target without a text of its own", c.ID)
			}
		}
	}
}

func TestKIPNamesTheCasesOfEachClause(t *testing.T) {
	kip, err := os.ReadFile("../KIP.md")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(conformance.ListClauses(string(kip)), "\n")
	for i, got := range strings.Split(string(kip), "\n") {
		if got != want[i] {
			t.Fatalf("KIP.md has %q, want %q: run `go run ./conformance/cmd/conformance list --kip KIP.md`", got, want[i])
		}
	}
}

// The table is written by `conformance prove --readme conformance/README.md`.
func TestTheTableOfProofsIsCurrent(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "| --- | --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "<!--")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	for _, c := range conformance.Cases() {
		for _, w := range c.Wrong {
			if len(rows) == 0 || !strings.HasPrefix(rows[0], conformance.ProofRow(c, w.Text)) {
				t.Fatalf("the row of %s and a target that %s is not there, or not in its place: run `go run ./conformance/cmd/conformance prove --readme conformance/README.md`", c.ID, w.Text)
			}
			if said := strings.TrimPrefix(rows[0], conformance.ProofRow(c, w.Text)); len(said) < 10 {
				t.Errorf("nothing is said of how %s catches a target that %s", c.ID, w.Text)
			}
			rows = rows[1:]
		}
	}
	if len(rows) > 0 {
		t.Errorf("the table has %d rows more", len(rows))
	}
}
