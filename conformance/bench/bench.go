// Package bench measures, from outside, the figures that a coordinator is held
// to: how soon after a SIGKILL it answers and has told every participant, and
// how soon another node takes over.
package bench

import (
	"context"
	"errors"
	"net"
	"os"
)

// Options configure a measurement.
type Options struct {
	Minibroker string // path of the binary
	Dir        string // for data and logs
	// Participant is the binary of the participants of Settle; Minibroker when
	// empty. kfake looks at all its open transactions and ids after every
	// request (updateTimer), so with ten thousand of them the ordinary binary
	// takes 95 % of the time by itself, whoever it is that ends them
	// (measured). scripts/bench makes one without that walk.
	Participant string
	// Bare measures the participants alone, too: as many EndTxn from clients
	// that do nothing else.
	Bare bool
	// Kafka takes real clusters as participants of Settle.
	Kafka bool
}

func mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }

// ports finds n addresses that nobody listens on.
func ports(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	var errs []error
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { errs = append(errs, l.Close()) }() // at the end, so that all differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, errors.Join(errs...)
}
