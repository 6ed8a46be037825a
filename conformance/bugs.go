package conformance

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// The bugs that many cases have to catch.

// hides is a target that does not refuse what it has to.
func hides(err error) wrong.Fault {
	w := recodes(err, nil)
	w.Text = "answers ok in place of " + errName(err)
	return w
}

// recodes is a target that gives one code for another.
func recodes(from, to error) wrong.Fault {
	was, is := codeFor(from), codeFor(to)
	return wrong.Fault{
		Text: fmt.Sprintf("answers %s in place of %s", errName(to), errName(from)),
		Hooks: proxy.Hooks{Answer: func(x *proxy.Exchange) {
			if recode(x.Response, was, is) {
				x.Changed()
			}
		}},
	}
}

func codeFor(err error) int16 {
	for code := int16(-1); code < 1100; code++ {
		if (code != 0 || err == nil) && wire.ErrorForCode(code) == err { //nolint:errorlint // the very one
			return code
		}
	}
	panic(fmt.Sprintf("no code for %v", err))
}

func recode(resp kmsg.Response, was, is int16) (changed bool) {
	one := func(code *int16) bool {
		if *code != was {
			return false
		}
		*code, changed = is, true
		return true
	}
	switch resp := resp.(type) {
	case *wire.InitGlobalTxnResponse:
		if one(&resp.ErrorCode) && is == 0 {
			resp.GlobalEpoch, resp.Sequence, resp.ClusterErrors = 1, 1, nil
		}
	case *wire.EndGlobalTxnResponse:
		if one(&resp.ErrorCode) && is == 0 && resp.Outcome == 0 {
			resp.Outcome = wire.OutcomeCommitted
		}
	case *wire.ResolveGlobalTransactionResponse:
		one(&resp.ErrorCode)
	case *wire.ListGlobalTransactionsResponse:
		one(&resp.ErrorCode)
	case *wire.DescribeGlobalTransactionsResponse:
		for i := range resp.GlobalTransactions {
			one(&resp.GlobalTransactions[i].ErrorCode)
		}
	case *wire.FindCoordinatorResponse:
		for i := range resp.Coordinators {
			if was != 0 { // or nobody would find whom to ask
				one(&resp.Coordinators[i].ErrorCode)
			}
		}
	case *kmsg.FindCoordinatorResponse:
		one(&resp.ErrorCode)
		for i := range resp.Coordinators {
			one(&resp.Coordinators[i].ErrorCode)
		}
	}
	return changed
}

// ends changes every answer to EndGlobalTxn that has an outcome.
func endsWith(text string, f func(*wire.EndGlobalTxnRequest, *wire.EndGlobalTxnResponse)) wrong.Fault {
	return wrong.Answers(text, func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
		if resp.Outcome == wire.OutcomeUnknown {
			return false
		}
		f(req, resp)
		return true
	})
}

// repeats changes the answers to EndGlobalTxn but the first with an outcome for
// each transaction.
func repeats(text string, f func(*wire.EndGlobalTxnRequest, *wire.EndGlobalTxnResponse)) wrong.Fault {
	var mu sync.Mutex
	seen := map[string]bool{}
	return endsWith(text, func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
		key := fmt.Sprintf("%s/%d", req.GlobalTransactionalID, req.Sequence)
		mu.Lock()
		again := seen[key]
		seen[key] = true
		mu.Unlock()
		if again {
			f(req, resp)
		}
	})
}

// describes changes what DescribeGlobalTransactions says of known ids.
func describes(text string, f func(*wire.DescribeGlobalTransactionsResponseGlobalTransaction)) wrong.Fault {
	return wrong.Answers(text, func(_ *wire.DescribeGlobalTransactionsRequest, resp *wire.DescribeGlobalTransactionsResponse) bool {
		for i := range resp.GlobalTransactions {
			if resp.GlobalTransactions[i].ErrorCode == 0 {
				f(&resp.GlobalTransactions[i])
			}
		}
		return true
	})
}

// lists changes the request to ListGlobalTransactions: a target that ignores a
// filter.
func lists(text string, f func(*wire.ListGlobalTransactionsRequest)) wrong.Fault {
	return wrong.Requests(text, func(req *wire.ListGlobalTransactionsRequest) bool {
		f(req)
		return true
	})
}

// inits changes what InitGlobalTxn answers when it grants a session.
func inits(text string, f func(*wire.InitGlobalTxnRequest, *wire.InitGlobalTxnResponse)) wrong.Fault {
	return wrong.Answers(text, func(req *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) bool {
		if resp.ErrorCode != 0 {
			return false
		}
		f(req, resp)
		return true
	})
}

// asked is a target that carries out another request to end than it got.
func asked(text string, f func(*wire.EndGlobalTxnRequest)) wrong.Fault {
	return wrong.Requests(text, func(req *wire.EndGlobalTxnRequest) bool {
		f(req)
		return true
	})
}

// takesFor is a coordinator that takes one answer to EndTxn for another.
func takesFor(text string, was, is int16) wrong.Fault {
	return forgetful(wrong.Hears(text, func(req *kmsg.EndTxnRequest, resp *kmsg.EndTxnResponse) bool {
		if resp.ErrorCode != was || req.ProducerID < 0 { // that one asks whether it may
			return false
		}
		resp.ErrorCode = is
		return true
	}))
}

// forgetful is a coordinator that does not look again at what it takes for ended:
// its scan would tell the decision once more (C-SCAN-6), and it would be right.
func forgetful(f wrong.Fault) wrong.Fault {
	answer := f.Answer
	f.Answer = func(x *proxy.Exchange) {
		if answer != nil {
			answer(x)
		}
		unseen(x)
	}
	return f
}

// takesForDone is a coordinator that takes for done what is not open any more,
// whatever the participant's transaction.version calls that.
func takesForDone(text string) wrong.Fault {
	return wrong.Hears(text, func(req *kmsg.EndTxnRequest, resp *kmsg.EndTxnResponse) bool {
		gone := []int16{kerr.InvalidTxnState.Code, kerr.ProducerFenced.Code, kerr.InvalidProducerEpoch.Code, kerr.InvalidProducerIDMapping.Code}
		if !slices.Contains(gone, resp.ErrorCode) || req.ProducerID < 0 {
			return false
		}
		resp.ErrorCode = 0
		return true
	})
}

// looks changes what the coordinator sees when it looks at a participant.
func looks(text string, f func(*kmsg.DescribeTransactionsResponseTransactionState)) wrong.Fault {
	return wrong.Fault{Text: text, Back: true, Hooks: proxy.Hooks{Answer: func(x *proxy.Exchange) {
		resp, ok := x.Response.(*kmsg.DescribeTransactionsResponse)
		if !ok {
			return
		}
		for i := range resp.TransactionStates {
			if x.Scope(resp.TransactionStates[i].TransactionalID) {
				f(&resp.TransactionStates[i])
			}
		}
		x.Changed()
	}}}
}

func flipCommit(req *wire.EndGlobalTxnRequest) { req.Committed = !req.Committed }

func flipEndTxn(req *kmsg.EndTxnRequest) bool {
	if req.ProducerID < 0 {
		return false
	}
	req.Commit = !req.Commit
	return true
}

func flipOutcome(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
	resp.Outcome = 3 - resp.Outcome
}

// stored changes the batches of the log, as somebody reads them.
func stored(text string, f func(*kmsg.RecordBatch)) wrong.Fault {
	return wrong.Answers(text, func(_ *kmsg.FetchRequest, resp *kmsg.FetchResponse) bool {
		for i := range resp.Topics {
			for k := range resp.Topics[i].Partitions {
				p := &resp.Topics[i].Partitions[k]
				var out []byte
				for b := p.RecordBatches; len(b) > 12; {
					n := min(len(b), 12+int(binary.BigEndian.Uint32(b[8:])))
					var batch kmsg.RecordBatch
					if batch.ReadFrom(b[:n]) == nil {
						f(&batch)
						batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
						out = batch.AppendTo(out)
					}
					b = b[n:]
				}
				p.RecordBatches = out
			}
		}
		return true
	})
}
