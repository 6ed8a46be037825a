package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/rig"
)

// proveFlags say what to prove and where the table goes.
type proveFlags struct {
	filter conformance.Filter
	readme string
}

func proveCommand() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use: "prove", Short: "Run each case against deliberately wrong targets, which it has to catch", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.prove(cmd.Context(), cmd.OutOrStdout()) },
	}
	filterFlags(cmd, &f.filter)
	cmd.Flags().StringVar(&f.readme, "readme", "", "write what was caught into the table of this file, between its marks")
	return cmd
}

func (f *proveFlags) prove(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "minibroker")
	if err = rig.Build(ctx, binary); err != nil {
		return err
	}
	rigs, err := rig.Quick(ctx, dir, binary, true)
	defer func() {
		for _, r := range rigs {
			r.Stop()
		}
	}()
	if err != nil {
		return err
	}
	suites := make([]*conformance.Suite, len(rigs))
	for i, r := range rigs {
		if suites[i], err = conformance.Open(ctx, r.Target); err != nil {
			return err
		}
		defer suites[i].Close()
	}
	shares, rest := conformance.Share(suites, f.filter.Select(conformance.Cases()))
	found := make([][]conformance.Proof, len(rigs))
	var running sync.WaitGroup
	for i, s := range suites {
		running.Go(func() { found[i] = s.Prove(ctx, shares[i], rigs[i].Backs, func(conformance.Proof) {}) })
	}
	running.Wait()
	return f.tell(out, slices.Concat(found...), rest)
}

// tell prints what was not caught, and writes the table when all was.
func (f *proveFlags) tell(out io.Writer, proofs []conformance.Proof, rest []*conformance.Case) error {
	caught := map[string]string{}
	missed := 0
	for _, p := range proofs {
		if p.Missed == "" {
			caught[p.Case.ID+"/"+p.Fault.Text] = p.Result.Text
			continue
		}
		missed++
		_, _ = fmt.Fprintf(out, "NOT CAUGHT %s of a target that %s: %s\n", p.Case.ID, p.Fault.Text, p.Missed)
	}
	for _, c := range rest {
		_, _ = fmt.Fprintf(out, "not applicable to any of these targets: %s %s\n", c.ID, c.Title)
	}
	if f.readme != "" && missed == 0 {
		if err := writeTable(f.readme, caught); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "%d caught, %d not caught, %d cases not applicable\n", len(caught), missed, len(rest))
	if missed > 0 {
		return errFailed
	}
	return nil
}

const (
	tableBegin = "<!-- proofs: conformance prove --readme -->\n"
	tableEnd   = "<!-- end of proofs -->\n"
)

// writeTable replaces the rows of what was proved now, and leaves the others.
func writeTable(file string, caught map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	table, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		return fmt.Errorf("%s has no %q and %q: %w", file, tableBegin, tableEnd, os.ErrInvalid)
	}
	all := conformance.Proofs(table)
	maps.Copy(all, caught)
	return os.WriteFile(file, []byte(before+tableBegin+conformance.ProofTable(all)+tableEnd+after), 0o644)
}
