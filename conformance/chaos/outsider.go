package chaos

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// outsider is a fault that nothing can survive, and so no part of a run: while
// it lasts, somebody commits on cluster us whatever is open there. It is there
// to be asked for by name, and the run must then find anomalies.
func (r *rig) outsider() fault {
	// So many ends of the outsider make it certain that one was against what
	// the coordinator decided. Such an end stands in its client's way from then
	// on, so there may be fewer, and then nothing to end for a while.
	const (
		enough = 10
		while  = 5 * time.Second
		most   = 2 * time.Minute
	)
	var stop context.CancelFunc
	var done chan error
	var ended atomic.Int32
	return fault{
		name: "outsider commits on chaos-us",
		inject: func(ctx context.Context) error {
			ctx, stop = context.WithCancel(ctx)
			done = make(chan error, 1)
			ended.Store(0)
			go func() { done <- commitAll(ctx, r.us.Bootstrap, &ended) }()
			return nil
		},
		heal: func(ctx context.Context) error {
			began := time.Now()
			last, lastAt := int32(0), began
			for time.Since(began) < most && ctx.Err() == nil {
				n := ended.Load()
				if n != last {
					last, lastAt = n, time.Now()
				}
				if n >= enough || n > 0 && time.Since(lastAt) > while {
					break
				}
				sleep(ctx, 10*time.Millisecond)
			}
			stop()
			return <-done
		},
	}
}

// commitAll commits every open transaction of a cluster, until ctx ends, and
// counts them.
func commitAll(ctx context.Context, addr string, ended *atomic.Int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for ; ctx.Err() == nil; sleep(ctx, time.Millisecond) {
		listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
		if err != nil || len(listed) == 0 {
			continue
		}
		described, err := adm.DescribeTransactions(ctx, listed.TransactionalIDs()...)
		if err != nil {
			continue
		}
		for _, t := range described {
			req := kmsg.NewPtrEndTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = t.TxnID, t.ProducerID, t.ProducerEpoch, true
			if resp, err := req.RequestWith(ctx, cl); err == nil && resp.ErrorCode == 0 { // one that has ended meanwhile is refused
				ended.Add(1)
			}
		}
	}
	return nil
}
