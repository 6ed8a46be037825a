package conformance

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// trace are the messages of one case, whoever sent them.
type trace struct {
	began time.Time
	mu    sync.Mutex
	all   []report.Event
}

// maxTrace bounds a trace: a case that polls is not told in full.
const maxTrace = 400

func (t *trace) add(from, to string, req kmsg.Request, resp kmsg.Response, asked, answered time.Time, err error) {
	e := report.Event{
		From: from, To: to, AtMs: ms(asked.Sub(t.began)), TookMs: -1,
		Name: fmt.Sprintf("%s v%d", wire.NameForKey(req.Key()), req.GetVersion()), Request: describe(req),
	}
	switch {
	case err != nil:
		e.Answer = "no answer: " + err.Error()
	case resp != nil:
		e.Answer, e.TookMs = describe(resp), ms(answered.Sub(asked))
	}
	t.push(e)
}

func (t *trace) note(text string) {
	t.push(report.Event{From: "suite", Name: text, AtMs: ms(time.Since(t.began))})
}

func (t *trace) push(e report.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) < maxTrace {
		t.all = append(t.all, e)
	}
}

// link adds what the coordinator said to a participant. Of a look at many ids
// only those of the case are told.
func (t *trace) link(to string, x *proxy.Exchange, ours func(string) bool) {
	req, resp := x.Request, x.Response
	if d, ok := req.(*kmsg.DescribeTransactionsRequest); ok {
		some := *d
		some.TransactionalIDs = keep(d.TransactionalIDs, ours)
		req = &some
	}
	if d, ok := resp.(*kmsg.DescribeTransactionsResponse); ok {
		some := *d
		some.TransactionStates = keep(d.TransactionStates, func(s kmsg.DescribeTransactionsResponseTransactionState) bool { return ours(s.TransactionalID) })
		resp = &some
	}
	t.add("coordinator", to, req, resp, x.Asked, x.Answered, nil)
}

func keep[T any](all []T, pass func(T) bool) (some []T) {
	for _, one := range all {
		if pass(one) {
			some = append(some, one)
		}
	}
	return some
}

func (t *trace) events() []report.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.all)
	slices.SortStableFunc(all, func(a, b report.Event) int { return cmp.Compare(a.AtMs, b.AtMs) })
	return all
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// describe writes a message for people: its fields that say something.
func describe(m any) string {
	var b strings.Builder
	write(&b, reflect.ValueOf(m))
	return b.String()
}

func write(b *strings.Builder, v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the rest are numbers and booleans
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		write(b, v.Elem())
	case reflect.Struct:
		writeStruct(b, v)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if v.Len() > 16 {
				fmt.Fprintf(b, "<%d bytes>", v.Len())
			} else {
				fmt.Fprintf(b, "%x", v.Interface())
			}
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v.Interface())
	}
}

func writeStruct(b *strings.Builder, v reflect.Value) {
	first := true
	for i := range v.NumField() {
		f := v.Type().Field(i)
		boring := f.Name == "Version" || f.Name == "UnknownTags" || strings.HasPrefix(f.Name, "Throttle") || !f.IsExported()
		if boring || v.Field(i).IsZero() && f.Name != "ErrorCode" && f.Name != "Outcome" {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		if f.Name == "ErrorCode" {
			b.WriteString(codeName(int16(v.Field(i).Int())))
			continue
		}
		b.WriteString(f.Name + "=")
		if f.Type.Kind() == reflect.Struct {
			b.WriteByte('{')
		}
		write(b, v.Field(i))
		if f.Type.Kind() == reflect.Struct {
			b.WriteByte('}')
		}
	}
}
