package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// fault is something that goes wrong and is mended again.
type fault struct {
	name   string
	inject func(context.Context) error
	heal   func(context.Context) error
}

// faults lists every fault of a rig; the order depends on nothing.
func (r *rig) faults() []fault {
	fs := []fault{{name: "no fault", inject: nothing, heal: nothing}}
	for _, n := range r.nodes {
		fs = append(fs, fault{"kill " + n.Name, func(context.Context) error { return n.Kill() }, n.Start}, pause(n.Name, func(s syscall.Signal) error { return n.Signal(s) }))
	}
	clusters := []*cluster.Cluster{r.us, r.eu}
	if r.home != nil {
		clusters = append(clusters, r.home)
	}
	for _, c := range clusters {
		fs = append(fs, fault{"kill " + c.Name, c.Kill, c.Start}, fault{"pause " + c.Name, c.Pause, c.Resume})
	}
	for _, w := range r.workers {
		fs = append(fs, fault{"kill client " + w.options.ID, func(context.Context) error { return w.Kill() }, func(ctx context.Context) error {
			if err := w.start(ctx); err != nil {
				return err
			}
			w.run()
			return nil
		}})
		fs = append(fs, fault{"kill client for the round " + w.options.ID, func(context.Context) error { return w.Kill() }, nothing})
		fs = append(fs, pause("client "+w.options.ID, func(s syscall.Signal) error { return w.Signal(s) }))
	}
	for _, l := range r.links.all {
		for _, how := range spoils {
			fs = append(fs, fault{fmt.Sprintf("link %s: %s", l.name, how), func(context.Context) error { return l.spoil(how) }, l.heal})
		}
	}
	slices.SortFunc(fs, func(a, b fault) int { return strings.Compare(a.name, b.name) })
	return fs
}

func nothing(context.Context) error { return nil }

func pause(name string, signal func(syscall.Signal) error) fault {
	return fault{
		"pause " + name,
		func(context.Context) error { return signal(syscall.SIGSTOP) },
		func(context.Context) error { return signal(syscall.SIGCONT) },
	}
}

// round is one fault and its times.
type round struct {
	fault fault
	// before passes under load before the fault, during until it is mended,
	// after until the clients are sent to rest.
	before, during, after time.Duration
}

// schedule is a run: it depends on the seed and the list of faults alone. Every
// fault of the list comes once before any comes twice.
func schedule(seed uint64, faults []fault, rounds int) []round {
	rng := rand.New(rand.NewPCG(seed, 2))
	between := func(low, high int) time.Duration { return time.Duration(low+rng.IntN(high-low)) * time.Millisecond }
	var all []round
	for len(all) < rounds {
		for _, i := range rng.Perm(len(faults)) {
			all = append(all, round{fault: faults[i], before: between(300, 1000), during: between(500, 3500), after: between(300, 1500)})
		}
	}
	return all[:rounds]
}
