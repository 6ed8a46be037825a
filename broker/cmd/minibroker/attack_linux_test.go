package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker/internal/attacktest"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	// attackRound is how many requests come between two looks.
	attackRound = 1000
	// attackPatience bounds the canary: a global transaction over two clusters,
	// while a node is attacked.
	attackPatience = 10 * time.Second
	// attackMemory bounds the node, in bytes, at its peak.
	attackMemory = 1 << 30
	// attackWait is how long an answer of a request that may wait is waited for.
	attackWait = 100 * time.Millisecond
)

// TestAnAttackByEveryRequestLosesNothing sends requests of every key and version,
// with fields at their edges, mangled frames among them, from a client without
// rights, one with some and one with all. A canary commits global transactions
// meanwhile. After each thousand the node is killed, or stopped, and started, and
// all that was acknowledged has to be there. scripts/attack is the long form.
func TestAnAttackByEveryRequestLosesNothing(t *testing.T) {
	seed := envNumber(t, "ATTACK_SEED", uint64(time.Now().UnixNano()))
	requests := int(envNumber(t, "ATTACK_REQUESTS", 2000))
	w := newAttackWorld(t)
	a := &attack{attackWorld: w, answers: make(map[string]int)}
	for round := 0; round*attackRound < requests && !t.Failed(); round++ {
		// A round by itself is repeated by its own seed.
		a.round(seed+uint64(round), min(attackRound, requests-round*attackRound))
	}
	t.Logf("ATTACK_SEED=%d: %d requests, of which %d were answered; the node ended %d connections",
		seed, a.sent, a.answers["answered"], a.answers["ended"])
	t.Logf("canary: %d commits, the longest %v; restarts: the longest %v; peak memory %d MB; %d records of %d acknowledged Produces are there",
		w.canary.commits, w.canary.longest.Round(time.Millisecond), w.longestStart.Round(time.Millisecond), w.peak>>20, w.records, len(w.ledger))
	for _, s := range a.slowest {
		t.Logf("slow: %v for %s", s.took.Round(time.Millisecond), s.how)
	}
}

// attack is what is sent, and what was answered.
type attack struct {
	*attackWorld
	sent    int
	recent  []string // what was sent last
	answers map[string]int
	slowest []slow
}

type slow struct {
	took time.Duration
	how  string
}

// round sends some requests as each of the attackers, and looks.
func (a *attack) round(seed uint64, requests int) {
	t := a.t
	t.Helper()
	r, began := rand.New(rand.NewPCG(seed, 0)), time.Now()
	for i, user := range attackers {
		a.restore()
		stop := a.canary.sing()
		gen := attacktest.NewGenerator(r, a.apis, a.seenBy(user))
		for n := requests*(i+1)/len(attackers) - requests*i/len(attackers); n > 0 && !t.Failed(); {
			shots := a.plan(r, gen, min(n, 1+r.IntN(30)))
			n -= len(shots)
			for how := waysOf(r); len(shots) > 0 && !t.Failed(); {
				shots = shots[a.connection(user, how, shots):]
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		t.Logf("%s after %v: %d sent", user, time.Since(began).Round(time.Millisecond), a.sent)
		if t.Failed() {
			a.dump()
			a.fail(seed, "while %q attacked", user)
		}
	}
	how := []os.Signal{syscall.SIGKILL, syscall.SIGTERM}[r.IntN(2)]
	if err := a.again(how); err != nil {
		a.fail(seed, "after %v: %v", how, err)
	}
	if err := a.look(); err != nil {
		a.fail(seed, "after %v and a start: %v", how, err)
	}
}

// dump has a node that still runs say what it does, and end.
func (a *attack) dump() {
	_ = a.node.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-a.node.done:
	case <-time.After(attackPatience):
	}
}

func (a *attack) fail(seed uint64, format string, args ...any) {
	a.t.Helper()
	a.t.Fatalf("ATTACK_SEED=%d ATTACK_REQUESTS=%d: %s\nsent last:\n%s", seed, attackRound, fmt.Sprintf(format, args...), strings.Join(a.recent, "\n"))
}

// onWire is a request that was sent.
type onWire struct {
	attacktest.Shot
	at time.Time
}

// ways is how a client treats its connection.
type ways struct{ loggedIn, reads, halfway bool }

func waysOf(r *rand.Rand) ways { return ways{r.IntN(20) > 0, r.IntN(8) > 0, r.IntN(8) == 0} }

// connection sends requests over one connection, until one ends it, and says how
// many.
func (a *attack) connection(user string, how ways, shots []planned) (sent int) {
	if last := &shots[len(shots)-1]; how.halfway {
		last.Frame, last.Torn = last.Frame[:len(last.Frame)/2], true
	}
	c, err := net.DialTimeout("tcp", a.addr, attackPatience)
	if err != nil {
		a.t.Errorf("cannot connect: %v", err)
		return 0
	}
	in := &answersOf{c: c, pending: make(map[int32]onWire), moved: make(chan struct{}, 1), done: make(chan struct{}), attack: a, user: user}
	defer func() {
		_ = c.Close()
		<-in.done
	}()
	must(a.t, c.SetDeadline(time.Now().Add(2*attackPatience)))
	if how.loggedIn {
		if err = login(c, user); err != nil {
			a.t.Errorf("%s cannot log in: %v", user, err)
			close(in.done)
			return 0
		}
	}
	if how.reads {
		go in.read()
	} else {
		close(in.done)
	}
	for _, shot := range shots {
		sent++
		a.remember(user, how, shot)
		if how.reads {
			in.expect(shot.Shot)
		}
		if _, err = c.Write(shot.Frame); err != nil || shot.Torn || shot.waits && how.reads && !in.wait() {
			break
		}
	}
	if how.reads && !how.halfway {
		in.wait()
	}
	return sent
}

// planned is a request that will be sent.
type planned struct {
	attacktest.Shot
	waits bool // for all answers, before the next
}

// plan makes n requests for a connection. What the node answers has no part in it,
// so that a seed always gives the same.
func (a *attack) plan(r *rand.Rand, gen *attacktest.Generator, n int) (shots []planned) {
	for i := range n {
		shots = append(shots, planned{gen.Next(int32(i + 1)), r.IntN(2) == 0})
	}
	return shots
}

func (a *attack) remember(user string, how ways, s planned) {
	a.sent++
	if !how.loggedIn {
		user += ", not logged in"
	}
	a.recent = append(a.recent, fmt.Sprintf("  %s: %.200s", user, s.How))
	a.recent = a.recent[max(0, len(a.recent)-60):]
}

// answersOf reads the answers of a connection.
type answersOf struct {
	*attack
	c     net.Conn
	user  string
	moved chan struct{} // something has come, or the end
	done  chan struct{} // nothing more is read

	mu      sync.Mutex
	order   []int32 // of what is pending
	pending map[int32]onWire
	ended   bool
}

func (in *answersOf) expect(s attacktest.Shot) {
	if s.Request == nil {
		return
	}
	if p, ok := s.Request.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pending[s.ID] = onWire{s, time.Now()}
	in.order = append(in.order, s.ID)
}

// wait waits for the answers of all that was sent, and says whether the
// connection goes on.
func (in *answersOf) wait() bool {
	for {
		in.mu.Lock()
		patience, over, ended := attackPatience, len(in.pending) == 0, in.ended
		for _, s := range in.pending {
			if slices.Contains(mayWait, s.Request.Key()) {
				patience = attackWait
			}
		}
		in.mu.Unlock()
		if over || ended {
			return !ended
		}
		select {
		case <-in.moved:
		case <-time.After(patience):
			in.mu.Lock()
			defer in.mu.Unlock()
			if patience == attackPatience && len(in.order) > 0 {
				s := in.pending[in.order[0]]
				in.t.Errorf("%s: no answer within %v to %s: %x", in.user, patience, s.How, s.Frame[:min(len(s.Frame), 300)])
			}
			return false
		}
	}
}

// mayWait are the keys of requests that say how long their answer may take.
var mayWait = []int16{
	int16(kmsg.Fetch), int16(kmsg.ShareFetch), int16(kmsg.JoinGroup), int16(kmsg.SyncGroup),
	wire.KeyInitGlobalTxn, wire.KeyEndGlobalTxn, wire.KeyResolveGlobalTransaction,
}

func (in *answersOf) read() {
	defer close(in.done)
	for {
		id, body, err := receive(in.c)
		in.mu.Lock()
		if err != nil {
			in.ended = true
			if !errors.Is(err, net.ErrClosed) {
				in.answers["ended"]++
			}
		} else if s, ok := in.pending[id]; ok {
			delete(in.pending, id)
			in.order = slices.DeleteFunc(in.order, func(o int32) bool { return o == id })
			in.answered(in.user, s, body)
		}
		in.mu.Unlock()
		select {
		case in.moved <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// answered looks at one answer.
func (a *attack) answered(user string, s onWire, body []byte) {
	a.answers["answered"]++
	resp := s.Request.ResponseKind()
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) && len(body) > 0 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		a.t.Errorf("%s: the answer to %s cannot be read: %v", user, s.How, err)
		return
	}
	if took := time.Since(s.at); !slices.Contains(mayWait, resp.Key()) {
		a.slowest = append(a.slowest, slow{took, user + ": " + s.How})
		slices.SortFunc(a.slowest, func(x, y slow) int { return int(y.took - x.took) })
		a.slowest = a.slowest[:min(len(a.slowest), 8)]
	}
	if p, ok := resp.(*kmsg.ProduceResponse); ok {
		if err := a.produced(user, s.Request.(*kmsg.ProduceRequest), p); err != nil {
			a.t.Errorf("%s: %s: %v", user, s.How, err)
		}
	}
}

// receive gives the correlation id of the next answer, and all after it.
func receive(c net.Conn) (id int32, body []byte, err error) {
	var head [8]byte
	if _, err = io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err = io.ReadFull(c, body)
	return int32(binary.BigEndian.Uint32(head[4:])), body, err
}

// login is SCRAM by hand: the requests after it are too.
func login(c net.Conn, user string) error {
	exchange := func(req kmsg.Request) (kmsg.Response, error) {
		if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 0)); err != nil {
			return nil, err
		}
		_, body, err := receive(c)
		if err != nil {
			return nil, err
		}
		resp := req.ResponseKind()
		if resp.IsFlexible() {
			body = body[1:]
		}
		return resp, resp.ReadFrom(body)
	}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = 1, "SCRAM-SHA-256"
	if _, err := exchange(handshake); err != nil {
		return err
	}
	session, token, err := scram.Auth{User: user, Pass: passwordOf(user)}.AsSha256Mechanism().Authenticate(context.Background(), "")
	for done := false; !done && err == nil; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 2, token
		resp, askErr := exchange(req)
		if askErr != nil {
			return askErr
		}
		r := resp.(*kmsg.SASLAuthenticateResponse)
		if r.ErrorCode != 0 {
			return kerr.ErrorForCode(r.ErrorCode)
		}
		done, token, err = session.Challenge(r.SASLAuthBytes)
	}
	return err
}
