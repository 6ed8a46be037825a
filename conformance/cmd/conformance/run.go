package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
)

// runFlags say what to test and where to write what was found.
type runFlags struct {
	bootstrap, target, config, name string
	participants                    []string
	parallel                        int
	deadline                        time.Duration
	traces                          bool
	filter                          conformance.Filter
	outputs
}

// outputs are files; an empty name means none.
type outputs struct{ html, json, junit string }

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test an implementation of the Global Transaction Coordinator role",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.bootstrap, "bootstrap-server", "", "host:port of each node of the coordinator, with commas between")
	fs.StringArrayVar(&f.participants, "participant", nil, "name=host:port of a cluster that the coordinator is configured with; the first is the one under test, the second its companion")
	fs.StringVar(&f.config, "command-config", "", "client properties file for the connections to the coordinator: security.protocol and what belongs to it")
	fs.StringVar(&f.target, "target", "", "properties file with all of this, and with what the target can do (conformance/README.md)")
	fs.StringVar(&f.name, "name", "", "name of the run in the report")
	fs.IntVar(&f.parallel, "parallel", 8, "cases at a time")
	fs.DurationVar(&f.deadline, "deadline", time.Minute, "time of one case")
	fs.BoolVar(&f.traces, "traces", false, "keep the messages of cases that pass, too")
	filterFlags(cmd, &f.filter)
	f.flags(cmd)
	return cmd
}

func filterFlags(cmd *cobra.Command, f *conformance.Filter) {
	cmd.Flags().StringSliceVar(&f.Cases, "case", nil, "only cases with such ids, as in LIFE-*")
	cmd.Flags().StringSliceVar(&f.Groups, "group", nil, "only groups with such names")
}

func (o *outputs) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.html, "html", "", "write one self-contained page")
	cmd.Flags().StringVar(&o.json, "json", "", "write the run as JSON, for `conformance report`")
	cmd.Flags().StringVar(&o.junit, "junit", "", "write JUnit's XML")
}

func (f *runFlags) read() (*conformance.Target, error) {
	t := &conformance.Target{
		ScanInterval: 10 * time.Second, MaxTimeout: 15 * time.Minute, RequestTimeout: 10 * time.Second, Expiration: 168 * time.Hour,
	}
	var err error
	if f.target != "" {
		if t, err = conformance.ReadTarget(f.target); err != nil {
			return nil, err
		}
	}
	t.Bootstrap = cmp.Or(f.bootstrap, t.Bootstrap)
	t.Name = cmp.Or(f.name, t.Name, t.Bootstrap)
	if f.config != "" {
		if t.Security, err = conformance.ReadSecurity(f.config); err != nil {
			return nil, err
		}
	}
	for _, p := range f.participants {
		name, at, ok := strings.Cut(p, "=")
		if !ok {
			return nil, fmt.Errorf("--participant %s: want name=host:port", p)
		}
		t.Participants = append(t.Participants, conformance.ParticipantTarget{Name: name, Bootstrap: at})
	}
	if len(t.Nodes) == 0 {
		for i := range strings.Split(t.Bootstrap, ",") {
			t.Nodes = append(t.Nodes, conformance.NodeTarget{Name: fmt.Sprint(i + 1)})
		}
	}
	return t, nil
}

func (f *runFlags) run(ctx context.Context, out io.Writer) error {
	t, err := f.read()
	if err != nil {
		return err
	}
	r, err := f.suite(ctx, t)
	if err != nil {
		return err
	}
	return f.write(out, []*report.Run{r})
}

// suite runs the cases that the flags select.
func (f *runFlags) suite(ctx context.Context, t *conformance.Target) (*report.Run, error) {
	s, err := conformance.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.Parallel, s.Deadline, s.Traces = f.parallel, f.deadline, f.traces
	s.Progress = progress(t.Name)
	cases := f.filter.Select(conformance.Cases())
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case has such an id and group; `conformance list` shows all: %w", os.ErrNotExist)
	}
	return s.Run(ctx, cases), nil
}

// progress is a line that is written over, on a terminal.
func progress(name string) func(done, all int, r report.Result) {
	if !isatty.IsTerminal(os.Stderr.Fd()) {
		return nil
	}
	failed := 0
	return func(done, all int, r report.Result) {
		if r.Verdict == report.Failed {
			failed++
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %d of %d, %d failed  %s", name, done, all, failed, r.ID)
		if done == all {
			fmt.Fprint(os.Stderr, "\r\033[K")
		}
	}
}

// write writes everything that is asked for, and the table last.
func (o *outputs) write(out io.Writer, runs []*report.Run) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, []*report.Run) error
	}{
		{o.html, report.WriteHTML},
		{o.junit, report.WriteJUnit},
		{o.json, func(w io.Writer, runs []*report.Run) error { return runs[0].WriteJSON(w) }},
	} {
		if f.name == "" {
			continue
		}
		if err := toFile(f.name, func(w io.Writer) error { return f.write(w, runs) }); err != nil {
			return err
		}
	}
	if err := report.WriteTable(out, runs); err != nil {
		return err
	}
	for _, r := range runs {
		if r.Count(report.Failed) > 0 {
			return errFailed
		}
	}
	return nil
}

func toFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err = write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}
