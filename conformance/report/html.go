package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.gohtml
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"seconds": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
	"date":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"join":    func(s []string) string { return strings.Join(s, " ") },
	"percent": func(n, of int) string { return fmt.Sprintf("%.2f", 100*float64(n)/float64(max(1, of))) },
}).Parse(pageText))

// matrix is what the page shows: cases by runs.
type matrix struct {
	Summary               string
	Passed, Failed, Other int
	All                   int
	Runs                  []*Run
	Groups                []matrixGroup
	Span                  int // columns of a row that goes over all
}

type matrixGroup struct {
	Name string
	Rows []matrixRow
}

type matrixRow struct {
	Result
	Cells    []matrixCell
	Failures []failure
	Search   string // lower case, for the filter
	Worst    Verdict
}

// matrixCell is a case in a run; without a verdict it was not selected.
type matrixCell struct {
	Verdict Verdict
	Text    string
	Seconds float64
	Anchor  string
}

type failure struct {
	Anchor, Run, Text string
	Diagram           diagram
}

// WriteHTML writes one page that needs nothing but itself: the matrix of cases by
// runs, and for each failed case what it means and its messages as a sequence
// diagram.
func WriteHTML(w io.Writer, runs []*Run) error {
	m := matrix{Summary: Summary(runs), Runs: runs, Span: 3 + len(runs)}
	at := map[string]int{} // group by name
	for k, run := range runs {
		m.Passed += run.Count(Passed)
		m.Failed += run.Count(Failed)
		m.Other += run.Count(NotApplicable)
		for i := range run.Results {
			res := &run.Results[i]
			g, known := at[res.Group]
			if !known {
				g = len(m.Groups)
				at[res.Group] = g
				m.Groups = append(m.Groups, matrixGroup{Name: res.Group})
			}
			m.Groups[g].row(res, len(runs)).add(run, k, res)
		}
	}
	m.All = m.Passed + m.Failed + m.Other
	return page.Execute(w, m)
}

func (g *matrixGroup) row(res *Result, runs int) *matrixRow {
	i := slices.IndexFunc(g.Rows, func(r matrixRow) bool { return r.ID == res.ID })
	if i < 0 {
		i = len(g.Rows)
		g.Rows = append(g.Rows, matrixRow{
			Result: *res, Cells: make([]matrixCell, runs), Worst: NotApplicable,
			Search: strings.ToLower(strings.Join(append([]string{res.ID, res.Group, res.Title}, res.Clauses...), " ")),
		})
	}
	return &g.Rows[i]
}

func (r *matrixRow) add(run *Run, k int, res *Result) {
	cell := &r.Cells[k]
	*cell = matrixCell{Verdict: res.Verdict, Text: res.Text, Seconds: res.Seconds}
	switch res.Verdict {
	case Failed:
		cell.Anchor = fmt.Sprintf("%s-%d", res.ID, k+1)
		r.Failures = append(r.Failures, failure{Anchor: cell.Anchor, Run: run.Target, Text: res.Text, Diagram: draw(res.Trace)})
		r.Worst = Failed
	case Passed:
		if r.Worst != Failed {
			r.Worst = Passed
		}
	case NotApplicable:
	}
}
