package broker

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
)

// storage is kfake's logger, and knows from it when kfake could not write: kfake
// says so in its log, and answers the client as if nothing had happened, except
// for a batch of records. The first failure is the last thing that counts: no
// answer leaves after it (see conn.nextUpstream), and the node ends.
type storage struct {
	log zerolog.Logger

	mu     sync.Mutex
	failed error
	tell   []func(error)
}

func newStorage(log zerolog.Logger) *storage {
	return &storage{log: log.With().Str("component", "kfake").Logger()}
}

// storageFailures begin the formats by which the pinned kfake reports a write
// that failed. It logs before it answers.
var storageFailures = []string{"persist ", "endTx: failed to persist", "compact pids.log", "compact groups.log", "rebuildSegments ", "save session state"}

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
