package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// Asks is what a policy asks the authorizer, for tests from outside.
type Asks struct {
	On          []kmsg.ACLResourceType
	Hides, Free bool
}

// AsksOf is that of one API key.
func AsksOf(key int16) (Asks, bool) {
	p, ok := policies[key]
	return Asks{p.asks.on, p.asks.hides, p.asks.free}, ok
}

// Promised says that the answers to an API key promise something.
func Promised(key int16) bool { return promised(key) }

// Guarded says that requests of an API key are looked into for what is the node's
// own, or kfake would do wrong.
func Guarded(key int16) bool { return policies[key].guard != nil }
