package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// faults are --crash-at and --stop-at: at a named point of the coordinator this
// process ends by SIGKILL, or stops until it gets SIGCONT. The crash suite and
// the demo use them; without them a signal would hit the moment between two
// messages only by luck.
func faults(f flags) (func(point string), error) {
	crash, err := signalAt("--crash-at", f.crashAt, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	stop, err := signalAt("--stop-at", f.stopAt, syscall.SIGSTOP)
	if err != nil {
		return nil, err
	}
	return func(point string) {
		crash(point)
		stop(point)
	}, nil
}

// signalAt reads point[:n] and returns a function that sends this process the
// signal when the point is reached for the n-th time.
func signalAt(flag, at string, signal syscall.Signal) (func(point string), error) {
	if at == "" {
		return func(string) {}, nil
	}
	point, count, counted := strings.Cut(at, ":")
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(count, 10, 32); err != nil || n < 1 {
			return nil, fmt.Errorf("%s %s: %q is not a count", flag, at, count)
		}
	}
	if points := service.FaultPoints(); !slices.Contains(points, point) {
		return nil, fmt.Errorf("%s: unknown point %q; there are %s", flag, point, strings.Join(points, ", "))
	}
	var left atomic.Int64
	left.Store(n)
	return func(p string) {
		if p != point || left.Add(-1) != 0 {
			return
		}
		if err := syscall.Kill(os.Getpid(), signal); err != nil {
			panic(fmt.Errorf("%s: %w", flag, err))
		}
		if signal == syscall.SIGKILL {
			select {} // nothing more leaves this process
		}
		// Another thread may be the one to take the signal.
		time.Sleep(100 * time.Millisecond)
	}, nil
}
