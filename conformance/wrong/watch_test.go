package wrong_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
)

func TestAFaultHasActedWhenWhatPassesIsNotWhatCame(t *testing.T) {
	commit := func() *proxy.Exchange {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.Commit = "id", true
		return &proxy.Exchange{Request: req, Response: req.ResponseKind()}
	}
	for _, c := range []struct {
		name  string
		hooks proxy.Hooks
		acts  bool
	}{
		{"looks on", proxy.Hooks{Request: func(*proxy.Exchange) {}, Answer: func(*proxy.Exchange) {}}, false},
		{"says that it has changed something, and has not", wrong.Requests("", func(*kmsg.EndTxnRequest) bool { return true }).Hooks, false},
		{"is about another request", wrong.Requests("", func(req *kmsg.ProduceRequest) bool { req.Acks = 1; return true }).Hooks, false},
		{"changes a request", wrong.Requests("", func(req *kmsg.EndTxnRequest) bool { req.Commit = false; return true }).Hooks, true},
		{"changes a version", wrong.Requests("", func(req *kmsg.EndTxnRequest) bool { req.Version = 4; return true }).Hooks, true},
		{"changes an answer", wrong.Answers("", func(_ *kmsg.EndTxnRequest, resp *kmsg.EndTxnResponse) bool { resp.ErrorCode = 1; return true }).Hooks, true},
		{"cuts", proxy.Hooks{Answer: (*proxy.Exchange).Cut}, true},
		{"answers in another's place", proxy.Hooks{Request: func(x *proxy.Exchange) { x.Answer(x.Request.ResponseKind()) }}, true},
		{"passes bytes", proxy.Hooks{Raw: func(b []byte) []byte { return b }}, false},
		{"changes bytes", proxy.Hooks{Raw: func(b []byte) []byte { b[0] = 1; return b }}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, acted := wrong.Watch(c.hooks)
			x := commit()
			if h.Request != nil {
				h.Request(x)
			}
			if h.Answer != nil {
				h.Answer(x)
			}
			if h.Raw != nil {
				h.Raw(make([]byte, 20))
			}
			select {
			case <-acted:
				if !c.acts {
					t.Error("it has done nothing, and counts as one that has acted")
				}
			default:
				if c.acts {
					t.Error("it has acted, and nobody knows")
				}
			}
		})
	}
}
