package service

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// scanForever runs the recovery scan of one configured cluster. Each has a loop of
// its own, in which its id is learned too, so that one that cannot be reached delays
// only itself. The first look is at once: it connects, and neither should the first
// client wait for that nor the metrics say that nobody can be reached.
func (s *Service) scanForever(alias string) {
	log := seldom(s.o.Logger.With().Str("cluster", alias).Logger())
	for more := true; more; more = s.pause(s.o.ScanInterval) {
		elapsed := stopwatch()
		id, err := s.o.Participants.Learn(s.ctx, alias)
		switch {
		case err == nil:
			s.scan(s.ctx, id, log)
			s.lookAtRetention(s.ctx, id, log)
		case s.ctx.Err() == nil:
			s.metrics.scanned(alias, err, elapsed()) // it has not said who it is
			log.Warn().Err(err).Msg("recovery scan: a participant cluster cannot be asked; its ids stay as they are")
		}
	}
}

// seldom says one thing a minute: a cluster that is away for a night is so at
// every scan.
func seldom(log zerolog.Logger) zerolog.Logger {
	return log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
}

// pause waits and reports false when the service ends first.
func (s *Service) pause(d time.Duration) bool {
	done := make(chan struct{})
	stop := s.o.Clock.After(d, func() { close(done) })
	defer stop()
	select {
	case <-done:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// scan looks at one cluster and tells every active shard what is open there of
// the ids that it knows.
func (s *Service) scan(ctx context.Context, clusterID string, log zerolog.Logger) {
	// Within a millisecond nobody knows what came first, and what ended in it
	// counts as later than the look.
	began, elapsed := s.o.Clock.Now().Mono-1, stopwatch()
	s.o.Fault("scan/before")
	open, err := s.o.Participants.Scan(ctx, clusterID, s.knows)
	s.o.Fault("scan/after")
	if ctx.Err() != nil {
		return
	}
	s.metrics.scanned(clusterID, err, elapsed())
	failed := ""
	if err != nil {
		failed = err.Error()
		log.Warn().Err(err).Msg("recovery scan incomplete; it proves nothing about what it did not see")
	}
	by := map[int32][]gtc.OpenTransaction{}
	for _, t := range open {
		p := txnlog.PartitionFor(t.ID, s.o.Log.Partitions())
		by[p] = append(by[p], t)
	}
	for _, sh := range s.owned() {
		ev := gtc.ScanCompleted{ClusterID: clusterID, Open: by[sh.partition], Failed: failed, BeganMono: began}
		sh.inbox.put(task{run: func(*term) { sh.step(ev) }})
	}
}

// knows asks the owner of the id's partition. An id that is still being loaded
// counts as unknown; the next scan sees it.
func (s *Service) knows(id string) bool {
	sh, err := s.shardFor(id)
	if err != nil || !sh.active.Load() {
		return false
	}
	known := make(chan bool, 1)
	sh.inbox.put(task{
		run:  func(t *term) { known <- t.machine.Knows(id) },
		gone: func() { known <- false },
	})
	select {
	case k := <-known:
		return k
	case <-sh.ctx.Done():
		return false
	}
}
