package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Memory of requests. What a connection announces is allocated as it arrives,
// and one request is bounded; a thousand connections that each send the largest
// one are not. So requests above a size take their cost from one budget, from
// their first byte until their answer is written. Smaller ones never wait: a
// client with ordinary requests is served whatever others send.
const (
	// smallProduce and smallControl are sizes up to which nothing is counted.
	smallProduce = 64 << 10
	smallControl = 2 << 10
	// produceCost is the frame here and kfake's copy of it.
	produceCost = 2
	// controlCost is what the smallest elements of arrays may take for each of
	// their bytes once they are parsed, here and in kfake.
	controlCost = 128
	// elementBytes is more than an element of an array takes, here and in kfake.
	elementBytes = 256
	// leastRate, in bytes a second, is what a client has to send at on top of
	// stallTimeout, so that nobody holds the budget for ever.
	leastRate = 1 << 20
)

// cost is what one frame takes from the budget.
type cost struct {
	c     *conn
	until time.Time // the frame has to be there; zero: no limit
	held  int64
}

func (c *conn) newCost() *cost { return &cost{c: c} }

// waiting sets the time for the next piece of the frame.
func (k *cost) waiting() error {
	d := stallTimeout
	if !k.until.IsZero() {
		if d = min(d, k.until.Sub(k.c.f.opts.Now())); d <= 0 {
			return frameErrorf("a frame that comes at less than %d bytes a second", leastRate)
		}
	}
	return k.c.allow(d)
}

// reserve waits for room.
func (k *cost) reserve(size int, key int16) error {
	small, factor := smallControl, int64(controlCost)
	if kmsg.Key(key) == kmsg.Produce {
		small, factor = smallProduce, produceCost
	}
	if size <= small || k.c.trusted {
		return nil
	}
	f := k.c.f
	n := min(int64(size)*factor, f.opts.Config.QueuedMaxRequestBytes) // a larger one has it for itself
	if err := f.budget.Acquire(k.c.ctx, n); err != nil {
		return err
	}
	k.held = n
	k.c.held.Add(n)
	k.until = f.opts.Now().Add(stallTimeout + time.Duration(size/leastRate)*time.Second)
	return nil
}

// parsed gives back what a request turned out not to need. A fetch of many
// partitions waits for records with what it really takes.
func (k *cost) parsed(req *request) {
	if k.held == 0 || kmsg.Key(req.key) == kmsg.Produce {
		return
	}
	if needed := int64(3*len(req.raw) + elementBytes*req.elements); needed < k.held {
		k.c.giveBack(k.held - needed)
		k.held = needed
	}
}

// giveBack returns what a request has taken.
func (c *conn) giveBack(n int64) {
	if n > 0 {
		c.held.Add(-n)
		c.f.budget.Release(n)
	}
}
