package conformance

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var two = []Need{NeedParticipants}

// wireCases are about bytes and versions, whatever they ask for.
var wireCases = []Case{
	{
		ID: "WIRE-01", Clauses: []string{"C-WIRE-1"},
		Title: "ApiVersions lists the five RPCs, in version 0", Means: "Clients do not find the coordinator's RPCs, or speak a version that it does not.",
		Run: func(r *Run) {
			for key := wire.KeyInitGlobalTxn; key <= wire.KeyResolveGlobalTransaction; key++ {
				i := slices.IndexFunc(r.Hello().ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key })
				r.Check(i >= 0, "%s is not in ApiVersions", wire.NameForKey(key))
				k := r.Hello().ApiKeys[i]
				r.Check(k.MinVersion == 0 && k.MaxVersion == 0, "%s has versions %d to %d, want 0 to 0", wire.NameForKey(key), k.MinVersion, k.MaxVersion)
			}
		},
		Wrong: []wrong.Fault{
			advertises("leaves ResolveGlobalTransaction out", func(k *kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey != wire.KeyResolveGlobalTransaction }),
			advertises("advertises a version 1 that there is not", func(k *kmsg.ApiVersionsResponseApiKey) bool {
				if k.ApiKey >= 1000 {
					k.MaxVersion = 1
				}
				return true
			}),
		},
	},
	{
		ID: "WIRE-02", Clauses: []string{"C-ROLE-2"},
		Title: "ApiVersions offers FindCoordinator up to version 7 at least", Means: "Clients cannot ask where the coordinator of an id is.",
		Run: func(r *Run) {
			for _, k := range r.Hello().ApiKeys {
				if k.ApiKey == wire.KeyFindCoordinator {
					r.Check(k.MaxVersion >= wire.FindCoordinatorVersion, "FindCoordinator is offered up to version %d", k.MaxVersion)
					return
				}
			}
			r.Failf("FindCoordinator is not in ApiVersions")
		},
		Wrong: []wrong.Fault{advertises("offers FindCoordinator up to version 6", func(k *kmsg.ApiVersionsResponseApiKey) bool {
			if k.ApiKey == wire.KeyFindCoordinator {
				k.MaxVersion = 6
			}
			return true
		})},
	},
	{
		ID: "WIRE-03", Clauses: []string{"C-WIRE-1"}, Needs: two,
		Title: "A tagged field that is not known is accepted", Means: "A newer client cannot talk to an older coordinator.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			req.UnknownTags.Set(500, []byte("from the future"))
			r.InitOK(req)
		},
		Wrong: []wrong.Fault{wrong.Answers("refuses tagged fields", func(req *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) bool {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return req.UnknownTags.Len() > 0
		})},
	},
	{
		ID: "WIRE-04", Clauses: []string{"C-WIRE-2"}, Needs: []Need{NeedPlain},
		Title: "A frame of impossible size ends the connection, and only that", Means: "One broken client takes a node down, or its memory.",
		Run: func(r *Run) {
			r.hostile(binary.BigEndian.AppendUint32(nil, 0x7fffffff))
			r.Hello()
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Fault{Text: "waits for what the size promises", Hooks: proxy.Hooks{Oversize: waits}})},
	},
	{
		ID: "WIRE-05", Clauses: []string{"C-WIRE-2"}, Needs: []Need{NeedPlain},
		Title: "A negative frame size ends the connection, and only that", Means: "One broken client takes a node down.",
		Run: func(r *Run) {
			r.hostile(binary.BigEndian.AppendUint32(nil, 0xffffffff))
			r.Hello()
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Fault{Text: "waits for what the size promises", Hooks: proxy.Hooks{Oversize: waits}})},
	},
	{
		ID: "WIRE-06", Clauses: []string{"C-WIRE-2"}, Needs: two,
		Title: "A request that is cut short is not carried out", Means: "Half a request is guessed at.",
		Run: func(r *Run) { r.malformed(func(body []byte) []byte { return body[:len(body)-9] }) },
		Wrong: []wrong.Fault{raw("reads the missing bytes as zeroes", func(body []byte) []byte {
			return append(body, make([]byte, 9)...)
		})},
	},
	{
		ID: "WIRE-07", Clauses: []string{"C-WIRE-2"}, Needs: two,
		Title: "A request with bytes left over is not carried out", Means: "A request in another layout is taken for this one.",
		Run:   func(r *Run) { r.malformed(func(body []byte) []byte { return append(body, 1, 2, 3) }) },
		Wrong: []wrong.Fault{raw("ignores what is left over", func(body []byte) []byte { return body[:len(body)-3] })},
	},
	{
		ID: "WIRE-08", Clauses: []string{"C-WIRE-2"}, Needs: two,
		Title: "A null where the schema has none is not carried out", Means: "A missing id is taken for an empty one.",
		Run: func(r *Run) {
			r.malformed(func(body []byte) []byte { // the id's length, with 0 for null, is the first byte
				n := int(body[0])
				return append([]byte{0}, body[n:]...)
			})
		},
		Wrong: []wrong.Fault{raw("makes an id up for null", func(body []byte) []byte {
			return append([]byte{2, 'x'}, body[1:]...)
		})},
	},
	{
		ID: "WIRE-09", Clauses: []string{"C-WIRE-2"}, Needs: two,
		Title: "A version that is not advertised is not carried out", Means: "A newer request is read as an older one.",
		Run: func(r *Run) {
			resp, req := &anyResponse{}, r.InitRequest(r.ID(), longEnough, r.A, r.B)
			err := r.raw(req.GlobalTransactionalID, &anyRequest{key: wire.KeyInitGlobalTxn, version: 1, body: req.AppendTo(nil)}, resp)
			r.Check(err != nil || len(resp.body) < 6 || binary.BigEndian.Uint16(resp.body[4:]) != 0, "InitGlobalTxn version 1 is answered ok")
		},
		Wrong: []wrong.Fault{{Text: "reads version 1 as version 0", Hooks: proxy.Hooks{Raw: func(frame []byte) []byte {
			if binary.BigEndian.Uint16(frame[4:]) == uint16(wire.KeyInitGlobalTxn) {
				binary.BigEndian.PutUint16(frame[6:], 0)
			}
			return frame
		}}}},
	},
	{
		ID: "WIRE-10", Clauses: []string{"C-WIRE-2"},
		Title: "An API key that there is not ends the connection, and only that", Means: "A client that asks for an unknown RPC waits for ever, or takes the node down.",
		Run: func(r *Run) {
			err := r.raw(r.ID(), &anyRequest{key: 1999}, &anyResponse{})
			r.Check(err != nil, "API key 1999 is answered")
			r.Hello()
		},
		Wrong: []wrong.Fault{{Text: "answers unknown keys as if they were known", Hooks: proxy.Hooks{Raw: func(frame []byte) []byte {
			if binary.BigEndian.Uint16(frame[4:]) != 1999 {
				return frame
			}
			return kmsg.NewRequestFormatter().AppendRequest(nil, wire.NewPtrListGlobalTransactionsRequest(), int32(binary.BigEndian.Uint32(frame[8:])))
		}}}},
	},
	{
		ID: "WIRE-11", Clauses: []string{"C-WIRE-3"}, Needs: two,
		Title: "Requests on one connection are answered in order", Means: "A client takes the answer to one request for that to another.",
		Run: func(r *Run) {
			c, err := dial(r.ctx, r.s.target.first(), r.s.target.Security)
			r.Must(err, "connecting")
			defer func() { _ = c.Close() }()
			defer context.AfterFunc(r.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
			f := kmsg.NewRequestFormatter()
			slow := f.AppendRequest(nil, r.InitRequest(r.ID(), longEnough, r.A, r.B), 71)
			_, err = c.Write(append(slow, f.AppendRequest(nil, wire.NewPtrListGlobalTransactionsRequest(), 72)...))
			r.Must(err, "writing two requests")
			for _, want := range []uint32{71, 72} {
				var head [8]byte
				_, err = io.ReadFull(c, head[:])
				r.Must(err, "reading the answers")
				got := binary.BigEndian.Uint32(head[4:])
				r.Check(got == want, "the answer with correlation id %d came first, want %d", got, want)
				_, err = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:])-4))
				r.Must(err, "reading the answers")
			}
		},
		Wrong: []wrong.Fault{{Text: "answers the second request first", Hooks: proxy.Hooks{Raw: func(frame []byte) []byte {
			// Correlation ids changed places.
			switch id := binary.BigEndian.Uint32(frame[8:]); id {
			case 71, 72:
				binary.BigEndian.PutUint32(frame[8:], 143-id)
			}
			return frame
		}}}},
	},
	{
		ID: "WIRE-12", Clauses: []string{"C-ROLE-1"}, Needs: []Need{NeedPlainNode},
		Title: "A node without the role does not advertise it", Means: "Clients send global transactions to a node that has no coordinator.",
		Run: func(r *Run) {
			for _, k := range r.plainNode().ApiKeys {
				r.Check(k.ApiKey < wire.KeyInitGlobalTxn || k.ApiKey > wire.KeyResolveGlobalTransaction, "a node without the role advertises %s", wire.NameForKey(k.ApiKey))
				r.Check(k.ApiKey != wire.KeyFindCoordinator || k.MaxVersion <= 6, "a node without the role offers FindCoordinator version %d", k.MaxVersion)
			}
		},
		Wrong: []wrong.Fault{advertises("advertises the role where it is not", func(k *kmsg.ApiVersionsResponseApiKey) bool {
			if k.ApiKey == wire.KeyFindCoordinator {
				k.MaxVersion = wire.FindCoordinatorVersion
			}
			return true
		})},
	},
	{
		ID: "WIRE-13", Clauses: []string{"C-ROLE-1"}, Needs: []Need{NeedPlainNode},
		Title: "A node without the role does not accept its requests", Means: "A node without a log takes decisions.",
		Run: func(r *Run) {
			c, err := dial(r.ctx, r.s.target.Plain, nil)
			r.Must(err, "connecting to the node without the role")
			defer func() { _ = c.Close() }()
			_, err = c.roundTrip(r.ctx, wire.NewPtrListGlobalTransactionsRequest())
			r.Check(err != nil && r.ctx.Err() == nil, "a node without the role answers ListGlobalTransactions")
		},
		Wrong: []wrong.Fault{wrong.Does("answers without the role", false, func(x *proxy.Exchange) { x.Answer(x.Request.ResponseKind()) })},
	},
}

// advertises changes ApiVersions; keys for which f says false are left out.
func advertises(text string, f func(*kmsg.ApiVersionsResponseApiKey) bool) wrong.Fault {
	return wrong.Answers(text, func(_ *kmsg.ApiVersionsRequest, resp *kmsg.ApiVersionsResponse) bool {
		var kept []kmsg.ApiVersionsResponseApiKey
		for _, k := range resp.ApiKeys {
			if f(&k) {
				kept = append(kept, k)
			}
		}
		resp.ApiKeys = kept
		return true
	})
}

// raw is a target that reads the body of InitGlobalTxn in its own way.
func raw(text string, f func(body []byte) []byte) wrong.Fault {
	return wrong.Fault{Text: text, Hooks: proxy.Hooks{Raw: func(frame []byte) []byte {
		if binary.BigEndian.Uint16(frame[4:]) != uint16(wire.KeyInitGlobalTxn) {
			return frame
		}
		at := 15 + int(binary.BigEndian.Uint16(frame[12:])) // size, header 2 with the client id
		frame = append(frame[:at:at], f(slices.Clone(frame[at:]))...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		return frame
	}}}
}

func waits(c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
}

// hostile sends bytes and fails unless the connection ends.
func (r *Run) hostile(b []byte) {
	c, err := (&net.Dialer{}).DialContext(r.ctx, "tcp", r.s.target.first())
	r.Must(err, "connecting")
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(r.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	_, err = c.Write(b)
	r.Must(err, "writing")
	_, err = io.ReadFull(c, make([]byte, 1))
	r.Check(r.ctx.Err() == nil, "the connection stays open after a frame of impossible size")
	r.Check(err != nil, "a frame of impossible size is answered")
}

// malformed changes the bytes of an InitGlobalTxn, and fails if it is carried
// out.
func (r *Run) malformed(change func([]byte) []byte) {
	resp, req := &anyResponse{}, r.InitRequest(r.ID(), longEnough, r.A, r.B)
	err := r.raw(req.GlobalTransactionalID, &anyRequest{key: wire.KeyInitGlobalTxn, body: change(req.AppendTo(nil))}, resp)
	if err == nil {
		r.Check(len(resp.body) >= 6 && binary.BigEndian.Uint16(resp.body[4:]) != 0, "a malformed InitGlobalTxn is answered ok")
	}
	r.Check(r.ctx.Err() == nil, "a malformed InitGlobalTxn is neither answered nor refused")
	r.Hello()
}

// raw asks the coordinator of an id, on a connection of its own, and again while
// the answer says nothing of the request. Without that a target that carries out
// what it must not, and finds a cluster busy, would seem to have refused it.
func (r *Run) raw(id string, req *anyRequest, resp *anyResponse) (err error) {
	req.resp, resp.key = resp, req.key
	r.Until("an answer of the coordinator", func() (bool, string) {
		addr, routeErr := r.route(id)
		if routeErr != nil {
			return false, routeErr.Error()
		}
		c, dialErr := dial(r.ctx, addr, r.s.target.Security)
		r.Must(dialErr, "connecting")
		defer func() { _ = c.Close() }()
		resp.body = nil
		_, err = c.roundTrip(r.ctx, req)
		delete(r.routes, id) // it may have moved
		if err != nil || len(resp.body) < 6 {
			return true, ""
		}
		code := int16(binary.BigEndian.Uint16(resp.body[4:]))
		return !slices.Contains(again, code) && !slices.Contains(notYet, code), codeName(code)
	})
	return err
}

// plainNode asks the node without the role for its APIs.
func (r *Run) plainNode() *kmsg.ApiVersionsResponse {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "conformance", "1"
	resp, err := r.ask("node without the role", r.s.target.Plain, "", nil, req)
	r.Must(err, "ApiVersions at the node without the role")
	return resp.(*kmsg.ApiVersionsResponse)
}

// anyRequest is a flexible request of any key and body.
type anyRequest struct {
	key, version int16
	body         []byte
	resp         *anyResponse
}

func (q *anyRequest) Key() int16                  { return q.key }
func (q *anyRequest) MaxVersion() int16           { return q.version }
func (q *anyRequest) SetVersion(int16)            {}
func (q *anyRequest) GetVersion() int16           { return q.version }
func (q *anyRequest) IsFlexible() bool            { return true }
func (q *anyRequest) AppendTo(b []byte) []byte    { return append(b, q.body...) }
func (q *anyRequest) ReadFrom([]byte) error       { return kbin.ErrNotEnoughData }
func (q *anyRequest) ResponseKind() kmsg.Response { return q.resp }

// anyResponse is what came.
type anyResponse struct {
	key  int16
	body []byte
}

func (a *anyResponse) Key() int16                { return a.key }
func (a *anyResponse) MaxVersion() int16         { return 0 }
func (a *anyResponse) SetVersion(int16)          {}
func (a *anyResponse) GetVersion() int16         { return 0 }
func (a *anyResponse) IsFlexible() bool          { return true }
func (a *anyResponse) AppendTo(b []byte) []byte  { return append(b, a.body...) }
func (a *anyResponse) ReadFrom(b []byte) error   { a.body = b; return nil }
func (a *anyResponse) RequestKind() kmsg.Request { return nil }
