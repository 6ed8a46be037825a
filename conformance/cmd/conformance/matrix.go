package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/rig"
)

// column is a target over real clusters.
type column struct {
	name    string
	profile cluster.Profile
	home    bool // the cluster has the log; otherwise it takes part
}

var columns = []column{
	{"mini-broker, Kafka 4.4.0", cluster.V44, false},
	{"mini-broker, Kafka 4.4.0 at transaction.version 1", cluster.V44TV1, false},
	{"mini-broker, Kafka 4.0.0", cluster.V400, false},
	{"mini-broker, Kafka 3.9.1", cluster.V391, false},
	{"gtc nodes, log on Kafka 4.4.0", cluster.V44, true},
}

// matrixFlags are runFlags over the targets of this repository.
type matrixFlags struct {
	runFlags
	quick bool
	dir   string
}

func matrixCommand() *cobra.Command {
	var f matrixFlags
	cmd := &cobra.Command{
		Use: "matrix", Short: "Run all cases over the targets of this repository, starting what that needs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.matrix(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "no real cluster")
	cmd.Flags().StringVar(&f.dir, "dir", "", "directory for logs and for the runs as JSON; by default a temporary one")
	cmd.Flags().IntVar(&f.parallel, "parallel", 8, "cases at a time")
	cmd.Flags().DurationVar(&f.deadline, "deadline", time.Minute, "time of one case")
	filterFlags(cmd, &f.filter)
	cmd.Flags().StringVar(&f.html, "html", "", "write one self-contained page")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write JUnit's XML")
	return cmd
}

func (f *matrixFlags) matrix(ctx context.Context, out io.Writer) error {
	if f.dir == "" {
		dir, err := os.MkdirTemp("", "conformance-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		f.dir = dir
	}
	binary := filepath.Join(f.dir, "minibroker")
	if err := rig.Build(ctx, binary); err != nil {
		return err
	}
	runs, err := f.quickRuns(ctx, binary)
	if err == nil && !f.quick {
		for _, c := range columns {
			var r *report.Run
			if r, err = f.column(ctx, binary, len(runs)+1, c); err != nil {
				break
			}
			runs = append(runs, r)
		}
	}
	if err != nil {
		return err
	}
	return f.write(out, runs)
}

// one runs the suite, and keeps what it found before another one begins.
func (f *matrixFlags) one(ctx context.Context, number int, t *conformance.Target) (*report.Run, error) {
	r, err := f.suite(ctx, t)
	if err != nil {
		return nil, err
	}
	return r, toFile(filepath.Join(f.dir, fmt.Sprintf("run-%d.json", number)), r.WriteJSON)
}

// quickRuns are all at once: a suite waits more than it works.
func (f *matrixFlags) quickRuns(ctx context.Context, binary string) ([]*report.Run, error) {
	all, err := rig.Quick(ctx, f.dir, binary, false)
	defer func() {
		for _, r := range all {
			r.Stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	runs, errs := make([]*report.Run, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	for i, r := range all {
		running.Go(func() { runs[i], errs[i] = f.one(ctx, i+1, r.Target) })
	}
	running.Wait()
	return runs, errors.Join(errs...)
}

func (f *matrixFlags) column(ctx context.Context, binary string, number int, c column) (*report.Run, error) {
	name := fmt.Sprint("conformance-", number)
	_ = (&cluster.Cluster{Name: name}).Down(ctx) // of a run that was killed
	k, err := cluster.Ensure(ctx, name, c.profile)
	if err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = k.Down(end)
	}()
	o := rig.Options{Dir: filepath.Join(f.dir, name), Minibroker: binary, Name: c.name}
	if err = os.Mkdir(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.home {
		o.Group, o.Home = true, k.Bootstrap
	} else {
		o.Subject = conformance.ParticipantTarget{Name: "kafka", Bootstrap: k.Bootstrap}
	}
	r, err := rig.Start(ctx, o)
	defer r.Stop()
	if err != nil {
		return nil, err
	}
	return f.one(ctx, number, r.Target)
}
