package sim

import "github.com/kafka-gtc/kafka-gtc/gtc"

// never is a deadline that does not come in a search.
const never = 10 * sweepIsFar

// searched makes a world for the search: two hosts, of which the first owns the
// partition, and one or two clients with one instance each.
func searched(mutant Mutant, clients int, versions []int16, sets []set, b budget) *world {
	w := &world{settings: settings{
		n: len(versions), mutant: mutant, deepCheck: true,
		machine: gtc.Config{
			MaxTimeoutMillis: 1000, VoteTimeoutMillis: 0, ExpirationMillis: 1 << 40,
			MaxParticipants: maxClusters, MaxWaiters: 8,
		},
		sessionTimeout: 1, patience: never, shape: shape{txns: 1, sets: sets, outsiders: 2},
	}}
	for h := range w.hosts {
		w.hosts[h].clock = gtc.Time{Mono: 1000, Wall: 1000}
	}
	for k, v := range versions {
		w.clusters[k] = cluster{version: v, maxEpoch: 32766}
	}
	for i := range w.clients {
		w.clients[i].txn = -1
	}
	w.budget = b
	w.claim(0)
	for i := range int8(clients) {
		w.clients[i].lives = 1
		w.start(i)
	}
	return w
}
