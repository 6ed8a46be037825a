package main

import (
	"fmt"
	"os"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/sim"
)

func main() {
	for _, s := range sim.Try(os.Args[1:]) {
		t := time.Now()
		f := s.Run()
		for _, l := range f.Path {
			fmt.Println(l)
		}
		f.Path = nil
		fmt.Printf("%+v %v\n", f, time.Since(t))
	}
}
