// Command tally reads the output of go test -json on standard input, prints a
// line per package and what failed, and appends "PASSED FAILED" to a file, from
// which scripts/test makes its last line.
//
// A skipped test is counted as failed, and named: nothing here is allowed to be
// skipped, and a test that did not run proves nothing.
package main

import (
	"fmt"
	"io"
	"os"

	"gotest.tools/gotestsum/testjson"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | tally COUNTS_FILE")
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, countsFile string) error {
	c, err := tally(in, out)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(countsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, c.passed, c.failed); err != nil {
		return err
	}
	return f.Close()
}

// counts are of tests and subtests.
type counts struct{ passed, failed int }

// tally reads everything and writes progress and a summary of what failed.
func tally(in io.Reader, out io.Writer) (counts, error) {
	handler := progress{
		EventFormatter: testjson.NewEventFormatter(out, "pkgname", testjson.FormatOptions{HideEmptyPackages: true}),
		out:            out,
	}
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout:                   in,
		Handler:                  handler,
		IgnoreNonJSONOutputLines: true,
	})
	if err != nil {
		return counts{}, fmt.Errorf("reading the output of go test -json: %w", err)
	}
	testjson.PrintSummary(out, execution, testjson.SummarizeAll)
	skipped := execution.Skipped()
	if len(skipped) > 0 {
		fmt.Fprintf(out, "%d skipped, which counts as failed\n", len(skipped))
	}
	c := counts{failed: len(execution.Failed()) + len(skipped)}
	for _, name := range execution.Packages() {
		c.passed += len(execution.Package(name).Passed)
	}
	// Errors outside any package (a pattern that matches nothing, say) are
	// failures of no test; without this they would be 0 failed.
	if c.failed == 0 && len(execution.Errors()) > 0 {
		c.failed = 1
	}
	return c, nil
}

// progress prints events as they come, and lines that are no event as they are.
type progress struct {
	testjson.EventFormatter
	out io.Writer
}

func (p progress) Event(event testjson.TestEvent, execution *testjson.Execution) error {
	return p.Format(event, execution)
}

func (p progress) Err(text string) error {
	_, err := fmt.Fprintln(p.out, text)
	return err
}
