package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Mirror runs flows between clusters.
type Mirror struct {
	o       Options
	metrics *metrics
}

// New checks the options. It speaks to nobody.
func New(o Options) (*Mirror, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Mirror{o: o, metrics: newMetrics(o.Clock.Now)}
	return m, m.metrics.register(o.Registerer)
}

// Run mirrors until ctx ends, and returns nil then. What may pass (a cluster or
// the coordinator is away, a rebalance) is tried again for ever. These errors
// end all flows, because going on would hide something:
//
//   - *DataLossError, unless the flow says to go on,
//   - *RecordError,
//   - *client.HeuristicError: the clusters differ until a person mends the data,
//   - *client.FencedError or FENCED_INSTANCE_ID: another process has the same
//     Instance,
//   - *client.NotEnabledError, *client.ClusterIDMismatchError: a setting.
func (m *Mirror) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, f := range m.o.Flows {
		t := m.task(f)
		wg.Go(func() {
			if err := t.run(ctx); err != nil {
				cancel(err)
			}
		})
		if m.o.ProgressInterval > 0 {
			wg.Go(func() { t.progress(ctx, m.o.ProgressInterval) })
		}
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// task is one flow over all its lives.
type task struct {
	flow      Flow
	policy    Policy
	instance  string
	o         *Options
	positions []string // groups that are mirrors' positions
	// bothWays: the target mirrors to the source too, under the same names.
	bothWays bool
	clock    Clock
	log      zerolog.Logger
	stats    *stats
}

func (m *Mirror) task(f Flow) *task {
	t := &task{
		flow: f, policy: m.o.Policy, instance: m.o.Instance, o: &m.o, clock: m.o.Clock,
		log:   m.o.Logger.With().Str("flow", f.Name()).Logger(),
		stats: m.metrics.of(f),
	}
	for _, g := range m.o.Flows {
		t.positions = append(t.positions, g.GroupID())
	}
	t.bothWays = m.o.Policy.Identity && t.flowBack() != nil
	return t
}

// flowBack is the flow in the other direction, if there is one.
func (t *task) flowBack() *Flow {
	for i, g := range t.o.Flows {
		if g.Source == t.flow.Target && g.Target == t.flow.Source {
			return &t.o.Flows[i]
		}
	}
	return nil
}

// direct are the aliases of clusters that have a flow of their own to the
// target.
func (t *task) direct() []string {
	var aliases []string
	for _, g := range t.o.Flows {
		if g.Target == t.flow.Target && g.Source != t.flow.Source {
			aliases = append(aliases, g.Source)
		}
	}
	return aliases
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// run begins the flow again after errors that may pass.
func (t *task) run(ctx context.Context) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		began := t.clock.Now()
		err := t.live(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case final(err):
			t.log.Error().Err(err).Msg("the mirror stops")
			return err
		}
		if t.clock.Now().Sub(began) > time.Minute {
			backoff = firstBackoff
		}
		t.stats.restarted()
		t.log.Warn().Err(err).Dur("again_in_ms", backoff).Msg("the flow begins again")
		if t.pause(ctx, backoff) != nil {
			return nil //nolint:nilerr // told to end
		}
	}
}

// final reports whether trying again would hide something.
func final(err error) bool {
	return errors.As(err, new(*DataLossError)) || errors.As(err, new(*RecordError)) || errors.Is(err, kerr.FencedInstanceID) ||
		errors.As(err, new(*client.HeuristicError)) || errors.As(err, new(*client.FencedError)) ||
		errors.As(err, new(*client.NotEnabledError)) || errors.As(err, new(*client.ClusterIDMismatchError))
}

// pause waits for d or the end of ctx.
func (t *task) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.clock.After(d):
		return nil
	}
}

// progress logs what was done, and how far the flow is behind.
func (t *task) progress(ctx context.Context, every time.Duration) {
	last, then := totals{}, t.clock.Now()
	for t.pause(ctx, every) == nil {
		now, lag, partitions := t.stats.snapshot()
		at := t.clock.Now()
		seconds := max(at.Sub(then).Seconds(), 0.001)
		t.log.Info().
			Int64("records", now.records).
			Str("rate", fmt.Sprintf("%.0f records/s, %.2f MB/s", float64(now.records-last.records)/seconds, float64(now.bytes-last.bytes)/seconds/1e6)).
			Int64("lag", lag).Int("partitions", partitions).
			Int64("transactions", now.transactions).Int64("aborted", now.aborted).
			Int64("group_offsets", now.groupOffsets).
			Dur("last_commit_age_ms", at.Sub(t.stats.lastCommit())).
			Msg("progress")
		last, then = now, at
	}
}

// sides asks the clusters that the flow concerns for their ids.
func (t *task) sides(ctx context.Context) (source, target *side, direct map[string]bool, err error) {
	open := func(alias string) (*side, error) { return openSide(ctx, alias, t.o.Clusters[alias].opts()) }
	if source, err = open(t.flow.Source); err != nil {
		return nil, nil, nil, err
	}
	if target, err = open(t.flow.Target); err != nil {
		source.close()
		return nil, nil, nil, err
	}
	direct = map[string]bool{}
	for _, alias := range t.direct() {
		s, err := open(alias)
		if err != nil {
			source.close()
			target.close()
			return nil, nil, nil, err
		}
		direct[s.id] = true
		s.close()
	}
	return source, target, direct, nil
}
