package client

import "github.com/twmb/franz-go/pkg/kgo"

// shared splits hooks into what each implements, without the two about the life
// of a kgo client. There are several kgo clients behind one Client, and new ones
// take the place of old ones, while a hook such as kprom's registers its metrics
// when it hears of a client, and panics when it hears of a second one.
func shared(hooks []kgo.Hook) []kgo.Hook {
	var parts []kgo.Hook
	for _, h := range hooks {
		if all, ok := h.([]kgo.Hook); ok { // kgo unpacks these as well
			parts = append(parts, shared(all)...)
			continue
		}
		parts = append(parts, brokerHooks(h)...)
		parts = append(parts, recordHooks(h)...)
	}
	return parts
}

func brokerHooks(h kgo.Hook) (parts []kgo.Hook) {
	if v, ok := h.(kgo.HookBrokerConnect); ok {
		parts = append(parts, struct{ kgo.HookBrokerConnect }{v})
	}
	if v, ok := h.(kgo.HookBrokerDisconnect); ok {
		parts = append(parts, struct{ kgo.HookBrokerDisconnect }{v})
	}
	if v, ok := h.(kgo.HookBrokerWrite); ok {
		parts = append(parts, struct{ kgo.HookBrokerWrite }{v})
	}
	if v, ok := h.(kgo.HookBrokerRead); ok {
		parts = append(parts, struct{ kgo.HookBrokerRead }{v})
	}
	if v, ok := h.(kgo.HookBrokerE2E); ok {
		parts = append(parts, struct{ kgo.HookBrokerE2E }{v})
	}
	if v, ok := h.(kgo.HookBrokerThrottle); ok {
		parts = append(parts, struct{ kgo.HookBrokerThrottle }{v})
	}
	if v, ok := h.(kgo.HookGroupManageError); ok {
		parts = append(parts, struct{ kgo.HookGroupManageError }{v})
	}
	return parts
}

func recordHooks(h kgo.Hook) (parts []kgo.Hook) {
	if v, ok := h.(kgo.HookProduceBatchWritten); ok {
		parts = append(parts, struct{ kgo.HookProduceBatchWritten }{v})
	}
	if v, ok := h.(kgo.HookProduceRecordBuffered); ok {
		parts = append(parts, struct{ kgo.HookProduceRecordBuffered }{v})
	}
	if v, ok := h.(kgo.HookProduceRecordPartitioned); ok {
		parts = append(parts, struct {
			kgo.HookProduceRecordPartitioned
		}{v})
	}
	if v, ok := h.(kgo.HookProduceRecordUnbuffered); ok {
		parts = append(parts, struct {
			kgo.HookProduceRecordUnbuffered
		}{v})
	}
	return parts
}

// announce tells the hooks of the client that stands for all of them.
func announce(hooks []kgo.Hook, cl *kgo.Client) {
	for _, h := range hooks {
		switch v := h.(type) {
		case []kgo.Hook:
			announce(v, cl)
		case kgo.HookNewClient:
			v.OnNewClient(cl)
		}
	}
}

// withdraw tells the hooks that all are closed.
func withdraw(hooks []kgo.Hook, cl *kgo.Client) {
	for _, h := range hooks {
		switch v := h.(type) {
		case []kgo.Hook:
			withdraw(v, cl)
		case kgo.HookClientClosed:
			v.OnClientClosed(cl)
		}
	}
}

// announce tells the hooks of all connections, before the first one is opened.
// The sessions of a ring share them, so one of the sessions does it.
func (s *session) announce() {
	announce(s.coord.hooks, s.coord.bootstrap)
	for _, p := range s.participants {
		announce(p.conf.Hooks, p.kgo)
	}
}

func (s *session) withdraw() {
	withdraw(s.coord.hooks, s.coord.bootstrap)
	for _, p := range s.participants {
		withdraw(p.conf.Hooks, p.kgo)
	}
}
