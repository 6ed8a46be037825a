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
	// tears: transactions may be torn by it, as far as the history explains. An
	// operator forgets what is, before the round is judged.
	tears bool
}

// faults lists every fault of a rig; the order depends on nothing.
func (r *rig) faults() []fault {
	fs := []fault{{name: "no fault", inject: nothing, heal: nothing}}
	for _, n := range r.nodes {
		fs = append(fs, fault{name: "kill " + n.Name, inject: func(context.Context) error { return n.Kill() }, heal: n.Start}, pause(n.Name, func(s syscall.Signal) error { return n.Signal(s) }))
	}
	clusters := []*cluster.Cluster{r.us, r.eu}
	if r.home != nil {
		clusters = append(clusters, r.home)
	}
	for _, c := range clusters {
		fs = append(fs, fault{name: "kill " + c.Name, inject: c.Kill, heal: c.Start}, fault{name: "pause " + c.Name, inject: c.Pause, heal: c.Resume})
	}
	for name := range r.participants() {
		fs = append(fs, r.goesBack(name))
		for _, how := range []spoil{hole, deaf, slow} {
			fs = append(fs, r.givesUp(name, r.byName["gtc-"+name], how))
		}
	}
	for _, w := range r.workers {
		kill := func(context.Context) error { return w.Kill() }
		fs = append(fs, fault{name: "kill client " + w.options.ID, inject: kill, heal: func(ctx context.Context) error {
			if err := w.start(ctx); err != nil {
				return err
			}
			w.run()
			return nil
		}})
		fs = append(fs, fault{name: "kill client for the round " + w.options.ID, inject: kill, heal: nothing})
		fs = append(fs, pause("client "+w.options.ID, func(s syscall.Signal) error { return w.Signal(s) }))
	}
	for _, l := range r.links.all {
		for _, how := range spoils {
			fs = append(fs, fault{name: fmt.Sprintf("link %s: %s", l.name, how), inject: func(context.Context) error { return l.spoil(how) }, heal: l.heal})
		}
	}
	slices.SortFunc(fs, func(a, b fault) int { return strings.Compare(a.name, b.name) })
	return fs
}

func nothing(context.Context) error { return nil }

func pause(name string, signal func(syscall.Signal) error) fault {
	return fault{
		name:   "pause " + name,
		inject: func(context.Context) error { return signal(syscall.SIGSTOP) },
		heal:   func(context.Context) error { return signal(syscall.SIGCONT) },
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
