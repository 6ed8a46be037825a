// Command sim runs the simulator and the exhaustive search of the coordinator's
// core. scripts/sim calls it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/gtc/sim"
)

func main() {
	var o sim.Options
	flag.IntVar(&o.Seeds, "seeds", 0, "simulate so many `worlds`, and look for every mutant")
	flag.Uint64Var(&o.From, "from", 0, "first `seed`")
	one := flag.Uint64("seed", 0, "simulate the world of one `seed`")
	flag.BoolVar(&o.Trace, "trace", false, "with -seed: tell everything that happens")
	mutant := flag.String("mutant", "", "with -seed: a broken variant; with -mutant list: name them all")
	flag.BoolVar(&o.Exhaustive, "exhaustive", false, "search every world of the configurations")
	flag.BoolVar(&o.Deep, "deep", false, "with -exhaustive: the largest configuration too; hours")
	flag.StringVar(&o.Keep, "keep", "", "append failing seeds to this `file`, and replay those in it first")
	flag.Parse()
	o.Mutant = sim.Mutant(*mutant)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "seed" {
			o.Seed = one
		}
	})
	clock := service.SystemClock()
	o.Elapsed = func() time.Duration { return time.Duration(clock.Now().Mono) * time.Millisecond }
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(o sim.Options, out io.Writer) error {
	if o.Mutant == "list" {
		return sim.ListMutants(out)
	}
	if o.Seeds == 0 && o.Seed == nil && !o.Exhaustive {
		flag.Usage()
		return fmt.Errorf("say what to do: -seeds, -seed or -exhaustive")
	}
	return sim.Main(o, out)
}
