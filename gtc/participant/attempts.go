package participant

import (
	"sync"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// attemptsKept bounds what is remembered of ends under way. What is forgotten
// is treated as if another process had sent an end before: safe, and slower.
const attemptsKept = 100_000

// attemptKey names one participant transaction on one cluster (on
// transaction.version 1 also its successors, until the producer is initialised
// again; a vote tells where the next begins).
type attemptKey struct {
	id            string
	producerID    int64
	producerEpoch int16
}

func keyOf(id string, ref gtc.ParticipantRef) attemptKey {
	return attemptKey{id, ref.ProducerID, ref.ProducerEpoch}
}

// An attempt is what this process knows of the ends that it sent for one
// participant transaction.
type attempt struct {
	busy bool // one is in flight now
	sent bool // one was sent before
	// uncertain: a copy may still reach the cluster, because a connection
	// broke or a deadline passed after it was written, or because this
	// process did not vote on the transaction itself, so that another may
	// have sent one before it died.
	uncertain bool
	misses    int // audits that found no marker
}

// attempts of one cluster.
type attempts struct {
	mu sync.Mutex
	m  map[attemptKey]*attempt
}

// voted says that this process saw the transaction open and that no end of it
// was sent before: the decision comes after the vote.
func (a *attempts) voted(k attemptKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.m[k]; old != nil && old.busy {
		return
	}
	a.put(k, &attempt{})
}

func (a *attempts) put(k attemptKey, at *attempt) {
	if a.m == nil {
		a.m = make(map[attemptKey]*attempt)
	}
	if _, replaces := a.m[k]; !replaces && len(a.m) >= attemptsKept {
		for other, o := range a.m { // any that is not in flight
			if !o.busy {
				delete(a.m, other)
				break
			}
		}
	}
	a.m[k] = at
}

// begin takes the attempt for one end; nil while another is in flight.
func (a *attempts) begin(k attemptKey) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.m[k]
	if at == nil {
		at = &attempt{uncertain: true}
		a.put(k, at)
	}
	if at.busy {
		return nil
	}
	at.busy = true
	return at
}

// finish gives the attempt back, and forgets it when the end is settled.
func (a *attempts) finish(k attemptKey, at *attempt, settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at.busy = false
	if settled && a.m[k] == at {
		delete(a.m, k)
	}
}
