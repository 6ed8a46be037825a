// Package report is what a run of the conformance suite has found, and how it is
// shown: a table for a terminal, JSON, JUnit's XML, and one self-contained HTML
// page into which several runs are merged.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Verdict of a case.
type Verdict string

// The verdicts.
const (
	Passed        Verdict = "passed"
	Failed        Verdict = "failed"
	NotApplicable Verdict = "not applicable"
)

// Run is one run of the suite: a column of the report.
type Run struct {
	// Target says what was tested, Participants with what.
	Target       string        `json:"target"`
	Participants []Participant `json:"participants"`
	Started      time.Time     `json:"started"`
	Seconds      float64       `json:"seconds"`
	Results      []Result      `json:"results"`
}

// Participant is a cluster as the suite has found it.
type Participant struct {
	Name, Version string
}

// Result is one case in one run.
type Result struct {
	ID      string   `json:"id"`
	Group   string   `json:"group"`
	Title   string   `json:"title"`
	Means   string   `json:"means"`
	Clauses []string `json:"clauses"`
	Verdict Verdict  `json:"verdict"`
	// Text is the failure, or why the case is not applicable.
	Text    string  `json:"text,omitempty"`
	Seconds float64 `json:"seconds"`
	// Trace are the messages of a case that failed, in the order in which they
	// were sent.
	Trace []Event `json:"trace,omitempty"`
}

// Event is a message with its answer, or a remark when it has no To.
type Event struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// AtMs and TookMs are milliseconds, of the case and of the request; TookMs
	// is negative when no answer came.
	AtMs    float64 `json:"atMs"`
	TookMs  float64 `json:"tookMs"`
	Name    string  `json:"name"`
	Request string  `json:"request,omitempty"`
	Answer  string  `json:"answer,omitempty"`
}

// Count is how many results have the verdict.
func (r *Run) Count(v Verdict) (n int) {
	for i := range r.Results {
		if r.Results[i].Verdict == v {
			n++
		}
	}
	return n
}

// Summary is the last line.
func Summary(runs []*Run) string {
	var passed, failed, not int
	for _, r := range runs {
		passed, failed, not = passed+r.Count(Passed), failed+r.Count(Failed), not+r.Count(NotApplicable)
	}
	return fmt.Sprintf("%d passed, %d failed, %d not applicable", passed, failed, not)
}

// WriteJSON writes one run.
func (r *Run) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ReadJSON reads what WriteJSON has written.
func ReadJSON(file string) (*Run, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var r Run
	if err := json.NewDecoder(f).Decode(&r); err != nil {
		return nil, fmt.Errorf("report: %s: %w", file, err)
	}
	return &r, nil
}
