package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are what the command is asked to do.
type Options struct {
	Seeds      int
	From       uint64
	Seed       *uint64
	Trace      bool
	Mutant     Mutant
	Exhaustive bool
	Deep       bool
	Keep       string // file of failing seeds
	// Elapsed is the time since the start.
	Elapsed func() time.Duration
}

// ErrFound says that a promise was broken, or a mutant not found.
var ErrFound = errors.New("not as it must be; see above")

// Main does what the command is asked to do, and reports on out.
func Main(o Options, to io.Writer) error {
	out := &printer{to: to}
	bad := false
	if o.Seed != nil {
		bad = o.oneSeed(out)
	}
	if o.Seeds > 0 {
		kept, err := ReadSeeds(o.Keep)
		if err != nil {
			return err
		}
		failed := o.manySeeds(out, kept)
		bad = o.mutants(out) || len(failed) > 0 || bad
		if err := keepSeeds(o.Keep, kept, failed); err != nil {
			return err
		}
	}
	if o.Exhaustive {
		bad = o.search(out) || bad
	}
	if bad {
		return errors.Join(out.err, ErrFound)
	}
	return out.err
}

// printer keeps the first error of its writer.
type printer struct {
	to  io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.to, format, args...); p.err == nil {
		p.err = err
	}
}

func (o Options) oneSeed(out *printer) bool {
	var trace func(string)
	if o.Trace {
		trace = func(line string) { out.printf("%s\n", line) }
	}
	r := Simulate(*o.Seed, o.Mutant, trace)
	out.printf("seed %d%s: %d moves, %d committed, %d aborted, %d torn by outsiders: %s\n",
		r.Seed, withName(r.Mutant), r.Moves, r.Committed, r.Aborted, r.Torn, violationText(r.Violation))
	return r.Violation != "" && o.Mutant == ""
}

func withName(m Mutant) string {
	if m == "" {
		return ""
	}
	return " of mutant " + string(m)
}

func violationText(violation string) string {
	if violation == "" {
		return "every promise kept"
	}
	return "VIOLATION: " + violation
}

// manySeeds simulates on all processors. The kept seeds come first.
func (o Options) manySeeds(out *printer, kept []uint64) []uint64 {
	var (
		mu     sync.Mutex
		next   atomic.Int64
		sum    Result
		failed []uint64
		wg     sync.WaitGroup
	)
	began := o.Elapsed()
	total := len(kept) + o.Seeds
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= total {
					return
				}
				seed := o.From + uint64(i-len(kept))
				if i < len(kept) {
					seed = kept[i]
				}
				r := Simulate(seed, "", nil)
				mu.Lock()
				sum.add(r)
				if r.Violation != "" {
					failed = append(failed, seed)
					out.printf("seed %d: VIOLATION: %s\n  replay: scripts/sim --seed %d --trace\n", seed, r.Violation, seed)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := (o.Elapsed() - began).Seconds()
	out.printf("%d seeds (%d of them kept), %d moves in %.1f s: %.0f seeds per second\n", total, len(kept), sum.Moves, took, float64(total)/took)
	out.printf("transactions: %d committed, %d aborted, %d torn by outsiders and reported, %d participants given up by an operator; %d ids expired\n",
		sum.Committed, sum.Aborted, sum.Torn, sum.GivenUp, sum.Expired)
	out.printf("violations: %d\n", len(failed))
	return failed
}

// mostMutantSeeds bounds the search for a mutant: the slowest takes a tenth.
const mostMutantSeeds = 20_000

// FindMutant simulates a mutant until a promise is broken.
func FindMutant(m Mutant) (seeds int, r Result) {
	for seed := range uint64(mostMutantSeeds) {
		if r = Simulate(seed, m, nil); r.Violation != "" {
			return int(seed) + 1, r
		}
	}
	return 0, r
}

func (o Options) mutants(out *printer) (bad bool) {
	for _, m := range Mutants() {
		seeds, r := FindMutant(m)
		if seeds == 0 {
			bad = true
			out.printf("mutant %-26s NOT FOUND in %d seeds\n", m, mostMutantSeeds)
			continue
		}
		out.printf("mutant %-26s found with %4d seeds: %s\n", m, seeds, r.Violation)
	}
	return bad
}

func (o Options) search(out *printer) (bad bool) {
	all := Searches()
	if o.Deep {
		all = append(all, Deep())
	}
	worlds, complete := int64(0), true
	for _, s := range all {
		began := o.Elapsed()
		f := s.Run()
		worlds += f.Worlds
		complete = complete && f.Complete
		out.printf("%s: %d states, %d moves, depth %d, %d ends played out, %.1f s, complete: %v, %s\n",
			f.Name, f.Worlds, f.Moves, f.Depth, f.Settled, (o.Elapsed() - began).Seconds(), f.Complete, violationText(f.Violation))
		if f.Violation != "" {
			bad = true
			out.printf("  %s\n", strings.Join(f.Path, "\n  "))
		}
	}
	out.printf("states: %d, violations: %d, complete: %v\n", worlds, int(bit(bad)), complete)
	for _, s := range RuleSearches() {
		f := s.Run()
		if f.Violation == "" {
			bad = true
			out.printf("%s: NOT FOUND in %d states\n", f.Name, f.Worlds)
			continue
		}
		out.printf("%s: found after %d states, %d moves from the start: %s\n", f.Name, f.Worlds, f.Depth, f.Violation)
		if o.Trace {
			out.printf("  %s\n", strings.Join(f.Path, "\n  "))
		}
	}
	return bad
}

// ReadSeeds reads a file of seeds, one a line, with a remark behind each that
// says why it was kept. A file that does not exist has none.
func ReadSeeds(path string) ([]uint64, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var seeds []uint64
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %q is no seed", path, n, text)
		}
		seeds = append(seeds, seed)
	}
	return seeds, lines.Err()
}

// keepSeeds adds failing seeds to the file.
func keepSeeds(path string, kept, failed []uint64) error {
	have := map[uint64]bool{}
	for _, s := range kept {
		have[s] = true
	}
	var b strings.Builder
	for _, s := range failed {
		if !have[s] {
			fmt.Fprintf(&b, "%d\n", s)
		}
	}
	if path == "" || b.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

// ListMutants names them all.
func ListMutants(to io.Writer) error {
	out := &printer{to: to}
	for _, m := range Mutants() {
		out.printf("%s\n", m)
	}
	return out.err
}
