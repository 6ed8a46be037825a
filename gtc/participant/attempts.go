package participant

import (
	"hash/maphash"
	"sync"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

// attemptsKept bounds what is remembered of ends under way. What is forgotten
// is treated as if another process had sent an end before: safe, and slower.
const attemptsKept = 100_000

// attemptKey names one participant transaction on one cluster (on
// transaction.version 1 also its successors, until the producer is initialised
// again; verdict.Attempt says which of them it is about).
type attemptKey struct {
	name          nameHash
	producerID    int64
	producerEpoch int16
}

func keyOf(id string, ref gtc.ParticipantRef) attemptKey {
	return attemptKey{hashOf(id), ref.ProducerID, ref.ProducerEpoch}
}

// nameHash stands for a transactional id in what is remembered by it. Ids have up
// to 32 kB, so what is bounded by their number alone is not bounded. Two ids of one
// hash would share a guess about their coordinator, which a broker refuses; nothing
// else, because a cluster gives no two ids one producer id.
type nameHash uint64

var nameSeed = maphash.MakeSeed()

func hashOf(id string) nameHash { return nameHash(maphash.String(nameSeed, id)) }

// An attempt is what this process knows of the ends of one participant transaction.
type attempt struct {
	verdict.Attempt
	busy bool // one is in flight now
}

// attempts of one cluster.
type attempts struct {
	mu sync.Mutex
	m  map[attemptKey]*attempt
}

// voted says that a broker has shown this process the transaction open that began at
// start.
func (a *attempts) voted(k attemptKey, start int64, by int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch old := a.m[k]; {
	case old == nil:
		a.put(k, &attempt{Attempt: verdict.Voted(start, by)})
	case !old.busy:
		old.Attempt = old.Voted(start, by)
	}
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
		at = &attempt{Attempt: verdict.Unvoted()}
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
