package wrong

import (
	"bytes"
	"net"
	"sync"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
)

// Watch returns hooks that do the same as h, and a channel that is closed when
// they first do something. A fault that had nothing to do proves nothing: a
// coordinator that would go wrong on its second try is right where one try is
// enough.
func Watch(h proxy.Hooks) (watched proxy.Hooks, acted <-chan struct{}) {
	done := make(chan struct{})
	act := sync.OnceFunc(func() { close(done) })
	watched.Request = around(h.Request, act, func(x *proxy.Exchange) message { return x.Request })
	watched.Answer = around(h.Answer, act, func(x *proxy.Exchange) message { return x.Response })
	if h.Raw != nil {
		watched.Raw = func(frame []byte) []byte {
			was := bytes.Clone(frame)
			is := h.Raw(frame)
			if !bytes.Equal(was, is) {
				act()
			}
			return is
		}
	}
	if h.Oversize != nil {
		watched.Oversize = func(c net.Conn) {
			act()
			h.Oversize(c)
		}
	}
	return watched, done
}

// message is what requests and answers have in common.
type message interface {
	GetVersion() int16
	AppendTo(b []byte) []byte
}

func around(hook func(*proxy.Exchange), act func(), of func(*proxy.Exchange) message) func(*proxy.Exchange) {
	if hook == nil {
		return nil
	}
	return func(x *proxy.Exchange) {
		m := of(x)
		version, was := m.GetVersion(), m.AppendTo(nil)
		x.Acting = act
		hook(x)
		x.Acting = nil
		if m = of(x); m.GetVersion() != version || !bytes.Equal(was, m.AppendTo(nil)) {
			act()
		}
	}
}
