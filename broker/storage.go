package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// storage is kfake's logger, and knows from it when kfake could not write: kfake
// says so in its log, and answers the client as if nothing had happened, except
// for a batch of records. The first failure is the last thing that counts: no
// answer leaves after it (see conn.nextUpstream), and the node ends.
type storage struct {
	log zerolog.Logger

	// sync, when not nil, is what the system says of all that was written to the
	// data directory; see settled.
	sync func() error
	dir  *os.File // that sync is about; nil without

	mu     sync.Mutex
	failed error
	tell   []func(error)
	// next is the look that those wait for who came during the one under way.
	next    *look
	looking bool
	looks   sync.WaitGroup
	closed  bool
}

// look is one call of sync, and who waits for it.
type look struct {
	done chan struct{}
}

func newStorage(log zerolog.Logger) *storage {
	return &storage{log: log.With().Str("component", "kfake").Logger()}
}

// open begins to watch the data directory, before anything is written to it:
// errors of before are not told. What a process before this one has written and
// not forced is brought to the disk first. What is made of it is forced, and
// must not outlive it.
func (s *storage) open(cfg *config.Config) (err error) {
	if cfg.LogDir == "" || !cfg.SyncWrites {
		return nil
	}
	if s.dir, err = os.Open(cfg.LogDir); err != nil {
		return fmt.Errorf("opening the data directory: %w", err)
	}
	if s.sync = syncer(s.dir); s.sync == nil {
		return nil
	}
	if err = s.sync(); err != nil {
		s.close()
		return fmt.Errorf("bringing the data directory %s to the disk: %w", cfg.LogDir, err)
	}
	return nil
}

// storageFailures begin the formats by which the pinned kfake reports a write
// that failed. It logs before it answers.
var storageFailures = []string{"persist ", "endTx: failed to persist", "rebuildSegments ", "save session state"}

// Logf implements kfake.Logger.
func (s *storage) Logf(level kfake.LogLevel, format string, args ...any) {
	levels := map[kfake.LogLevel]zerolog.Level{
		kfake.LogLevelError: zerolog.ErrorLevel, kfake.LogLevelWarn: zerolog.WarnLevel,
		kfake.LogLevelInfo: zerolog.DebugLevel, // kfake's info is each request
	}
	z, ok := levels[level]
	if !ok {
		z = zerolog.TraceLevel
	}
	s.log.WithLevel(z).Msgf(format, args...)
	if level != kfake.LogLevelWarn && level != kfake.LogLevelError {
		return
	}
	for _, prefix := range storageFailures {
		if strings.HasPrefix(format, prefix) {
			s.fail(fmt.Errorf("the embedded broker could not write: %s", fmt.Sprintf(format, args...)))
			return
		}
	}
}

func (s *storage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return
	}
	s.failed = err
	for _, tell := range s.tell {
		tell(err)
	}
}

// close waits for who still waits for the disk.
func (s *storage) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.looks.Wait()
	if s.dir != nil {
		_ = s.dir.Close() // nothing was written to it
	}
}

// err is the first failure.
func (s *storage) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// onFailure calls tell, which must not block, at the first failure.
func (s *storage) onFailure(tell func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		tell(s.failed)
	}
	s.tell = append(s.tell, tell)
}

// settled waits until the system has said that what was written so far is on
// the disk, and returns the first failure of all. kfake does not look at what
// fsync returns, so a disk that takes a decision and loses it would go unseen:
// the system tells an error once to each who opened the file system before it,
// and this is ours to be told. Looks are shared by all who come during one.
func (s *storage) settled() error {
	if s.sync == nil {
		return s.err()
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.New("the data directory is closed")
	}
	l := s.next
	if l == nil {
		l = &look{done: make(chan struct{})}
		s.next = l
		if !s.looking {
			s.looking = true
			s.looks.Go(s.look)
		}
	}
	s.mu.Unlock()
	<-l.done
	return s.err()
}

// look calls sync until nobody waits.
func (s *storage) look() {
	for {
		s.mu.Lock()
		l := s.next
		s.next = nil
		if l == nil {
			s.looking = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if err := s.sync(); err != nil {
			s.fail(fmt.Errorf("the system could not bring the data directory to the disk: %w", err))
		}
		close(l.done)
	}
}
