package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/kafka-gtc/kafka-gtc/gtc/sim"
)

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	if len(os.Args) > 2 {
		m := sim.Mutant("")
		if len(os.Args) > 3 {
			m = sim.Mutant(os.Args[3])
		}
		r := sim.Simulate(uint64(n), m, func(s string) { fmt.Println(s) })
		fmt.Printf("%+v\n", r)
		return
	}
	bad := map[string]int{}
	c, a, t, mv := 0, 0, 0, 0
	for i := range n {
		r := sim.Simulate(uint64(i), "", nil)
		c += r.Committed
		a += r.Aborted
		t += r.Torn
		mv += r.Moves
		if r.Violation != "" {
			bad[r.Violation]++
			if bad[r.Violation] <= 1 {
				fmt.Println(i, r.Moves, r.Violation)
			}
		}
	}
	fmt.Println(len(bad), c, a, t, mv)
}
