package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Quick starts the targets that need no real cluster: the mini-broker with
// participants on transaction.version 2, and on 1, and everything over TLS; and
// two nodes that are coordinators alone over the log of a third. Stop them all,
// also after an error.
func Quick(ctx context.Context, dir, minibroker string, proof bool) ([]*Rig, error) {
	all := []*Rig{
		{o: Options{Name: "mini-broker"}},
		{o: Options{Name: "mini-broker, transaction.version 1", V4: true}},
		{o: Options{Name: "gtc nodes, log on a mini-broker", Group: true, SessionTimeout: 30 * time.Second}},
		{o: Options{Name: "mini-broker, SASL_SSL", Secure: true}},
	}
	errs := make([]error, len(all))
	var starting sync.WaitGroup
	for i, r := range all {
		starting.Go(func() {
			o := r.o
			o.Dir, o.Minibroker, o.Proof = filepath.Join(dir, fmt.Sprint("target-", i)), minibroker, proof
			if errs[i] = os.Mkdir(o.Dir, 0o700); errs[i] != nil {
				return
			}
			started, err := Start(ctx, o)
			*r = *started
			if errs[i] = err; err == nil && o.Group {
				// A group that was killed takes its session's timeout to come
				// back, once for each case: that is for the long run.
				for k := range r.Target.Nodes {
					r.Target.Nodes[k].Kill, r.Target.Nodes[k].Pause = nil, nil
				}
			}
		})
	}
	starting.Wait()
	return all, errors.Join(errs...)
}
