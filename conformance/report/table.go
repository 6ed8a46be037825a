package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTable writes a row for each group, the failures, what was not applicable
// by its reason, and the summary as the last line.
func WriteTable(w io.Writer, runs []*Run) error {
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, "%s, %.1f s\n", r.Target, r.Seconds)
		for _, p := range r.Participants {
			fmt.Fprintf(&b, "  participant %s: %s\n", p.Name, p.Version)
		}
		writeGroups(&b, r)
		writeFailures(&b, r)
		writeReasons(&b, r)
	}
	b.WriteString(Summary(runs) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeGroups(b *strings.Builder, r *Run) {
	fmt.Fprintf(b, "\n  %-16s %7s %7s %15s %9s\n", "group", "passed", "failed", "not applicable", "seconds")
	for _, g := range groupsOf(r.Results) {
		one := Run{}
		seconds := 0.0
		for i := range r.Results {
			if r.Results[i].Group == g {
				one.Results = append(one.Results, r.Results[i])
				seconds += r.Results[i].Seconds
			}
		}
		fmt.Fprintf(b, "  %-16s %7d %7d %15d %9.1f\n", g, one.Count(Passed), one.Count(Failed), one.Count(NotApplicable), seconds)
	}
	b.WriteString("\n")
}

func groupsOf(results []Result) (groups []string) {
	for i := range results {
		if !slices.Contains(groups, results[i].Group) {
			groups = append(groups, results[i].Group)
		}
	}
	return groups
}

func writeFailures(b *strings.Builder, r *Run) {
	for i := range r.Results {
		if f := &r.Results[i]; f.Verdict == Failed {
			fmt.Fprintf(b, "  FAILED %s %s (%s)\n    %s\n    It means: %s\n\n", f.ID, f.Title, strings.Join(f.Clauses, ", "), f.Text, f.Means)
		}
	}
}

func writeReasons(b *strings.Builder, r *Run) {
	reasons := map[string][]string{}
	var order []string
	for i := range r.Results {
		if n := &r.Results[i]; n.Verdict == NotApplicable {
			if reasons[n.Text] == nil {
				order = append(order, n.Text)
			}
			reasons[n.Text] = append(reasons[n.Text], n.ID)
		}
	}
	for _, reason := range order {
		fmt.Fprintf(b, "  not applicable: %s\n    %s\n", reason, strings.Join(reasons[reason], " "))
	}
	if order != nil {
		b.WriteString("\n")
	}
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the runs as test suites; a case that is not applicable is a
// skipped one, with the reason.
func WriteJUnit(w io.Writer, runs []*Run) error {
	var all junitSuites
	for _, r := range runs {
		s := junitSuite{
			Name: r.Target, Tests: len(r.Results), Failures: r.Count(Failed), Skipped: r.Count(NotApplicable),
			Time: fmt.Sprintf("%.3f", r.Seconds), Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		}
		for i := range r.Results {
			s.Cases = append(s.Cases, junitOf(&r.Results[i]))
		}
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitOf(res *Result) junitCase {
	c := junitCase{Class: "conformance." + res.Group, Name: res.ID + " " + res.Title, Time: fmt.Sprintf("%.3f", res.Seconds)}
	switch res.Verdict {
	case Failed:
		var b strings.Builder
		fmt.Fprintf(&b, "%s\nClauses: %s\nIt means: %s\n", res.Text, strings.Join(res.Clauses, ", "), res.Means)
		for _, e := range res.Trace {
			fmt.Fprintf(&b, "%.1f ms %s -> %s %s %s = %s\n", e.AtMs, e.From, e.To, e.Name, e.Request, e.Answer)
		}
		c.Failure = &junitText{Message: res.Text, Text: b.String()}
	case NotApplicable:
		c.Skipped = &junitText{Message: res.Text}
	case Passed:
	}
	return c
}
