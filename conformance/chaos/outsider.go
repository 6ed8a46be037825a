package chaos

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// outsider is a fault that nothing can survive, and so no part of a run: while
// it lasts, somebody commits on cluster us whatever is open there. It is there
// to be asked for by name, and the run must then find anomalies.
func (r *rig) outsider() fault {
	var stop context.CancelFunc
	var done chan error
	return fault{
		name: "outsider commits on chaos-us",
		inject: func(ctx context.Context) error {
			ctx, stop = context.WithCancel(ctx)
			done = make(chan error, 1)
			go func() { done <- commitAll(ctx, r.us.Bootstrap) }()
			return nil
		},
		heal: func(context.Context) error {
			stop()
			return <-done
		},
	}
}

// commitAll commits every open transaction of a cluster, until ctx ends.
func commitAll(ctx context.Context, addr string) error {
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
			_, _ = req.RequestWith(ctx, cl) // one that has ended meanwhile is refused
		}
	}
	return nil
}
