package report

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is two runs, with a case that failed in one of them.
func sample() []*Run {
	trace := []Event{
		{From: "client", To: "coordinator", Name: "EndGlobalTxn v0", AtMs: 1, TookMs: 20, Request: `GlobalTransactionalID="x" Committed=true`, Answer: "ok Outcome=1"},
		{From: "coordinator", To: "us", Name: "DescribeTransactions v0", AtMs: 2, TookMs: 1, Answer: "ok"},
		{From: "coordinator", To: "us", Name: "EndTxn v5", AtMs: 5, TookMs: -1, Answer: "no answer: EOF"},
		{From: "suite", Name: "killing a node", AtMs: 6},
	}
	one := Result{ID: "LIFE-01", Group: "lifecycle", Title: "A commit is visible", Means: "Data <is> lost.", Clauses: []string{"C-ATOM-1"}, Verdict: Passed, Seconds: 0.1}
	bad := one
	bad.Verdict, bad.Text, bad.Trace = Failed, "a reader sees [] at us, want [v]", trace
	other := Result{ID: "SEC-01", Group: "security", Title: "A stranger is refused", Means: "Anybody may.", Clauses: []string{"C-SEC-1"}, Verdict: NotApplicable, Text: "no principals"}
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	return []*Run{
		{Target: "first", Started: at, Seconds: 1, Participants: []Participant{{"us", "v4.4"}}, Results: []Result{one, other}},
		{Target: "second", Started: at, Seconds: 2, Results: []Result{bad, other}},
	}
}

func TestTheLastLineOfTheTableIsTheSummary(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTable(&b, sample()); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.HasSuffix(text, "\n1 passed, 1 failed, 2 not applicable\n") {
		t.Errorf("the table ends with %q", text[max(0, len(text)-60):])
	}
	for _, want := range []string{"FAILED LIFE-01 A commit is visible (C-ATOM-1)", "It means: Data <is> lost.", "not applicable: no principals\n    SEC-01"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestJUnitCountsWhatIsNotApplicableAsSkipped(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJUnit(&b, sample()); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if s := got.Suites[1]; s.Tests != 2 || s.Failures != 1 || s.Skipped != 1 || s.Cases[0].Failure == nil || s.Cases[1].Skipped.Message != "no principals" {
		t.Errorf("%+v", s)
	}
}

func TestARunSurvivesJSON(t *testing.T) {
	want := sample()[1]
	name := filepath.Join(t.TempDir(), "run.json")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err = want.WriteJSON(f); err != nil {
		t.Fatal(err)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadJSON(name)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestThePageNeedsNothingButItself(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, sample()); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, foreign := range []string{"http://", "https://", "src=", "@import", "<link", "ZgotmplZ"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	for _, want := range []string{"LIFE-01-2", "Data &lt;is&gt; lost.", "EndTxn v5", "killing a node", "no principals"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// A poll that says the same a hundred times is one arrow.
func TestWhatIsSaidAgainIsDrawnOnce(t *testing.T) {
	e := Event{From: "client", To: "coordinator", Name: "DescribeGlobalTransactions v0", Answer: "ok"}
	d := draw([]Event{e, e, e, {From: "coordinator", To: "eu", Name: "EndTxn v5"}})
	if len(d.Arrows) != 2 || d.Arrows[0].Times != 3 {
		t.Errorf("%d arrows, the first for %d messages", len(d.Arrows), d.Arrows[0].Times)
	}
	if names := []string{d.Lanes[0].Name, d.Lanes[1].Name, d.Lanes[2].Name}; !reflect.DeepEqual(names, []string{"client", "coordinator", "eu"}) {
		t.Errorf("lanes %v", names)
	}
}
