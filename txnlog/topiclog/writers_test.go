package topiclog

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func TestWhoMayWriteToTheLogIsSaid(t *testing.T) {
	allow := func(principal string, op kmsg.ACLOperation) kmsg.DescribeACLsResponseResourceACL {
		a := kmsg.NewDescribeACLsResponseResourceACL()
		a.Principal, a.Host, a.Operation, a.PermissionType = principal, "*", op, kmsg.ACLPermissionTypeAllow
		return a
	}
	gtc, reader := allow("User:gtc", kmsg.ACLOperationWrite), allow("User:reader", kmsg.ACLOperationRead)
	for name, c := range map[string]struct {
		code    *kerr.Error
		acls    []kmsg.DescribeACLsResponseResourceACL
		private bool
		want    string // in the one line that is logged; empty: none is
	}{
		"the coordinator alone":  {acls: []kmsg.DescribeACLsResponseResourceACL{gtc, reader, allow("User:gtc", kmsg.ACLOperationAll)}},
		"one more":               {acls: []kmsg.DescribeACLsResponseResourceACL{gtc, allow("User:app", kmsg.ACLOperationAll)}, want: `"principals":["User:app","User:gtc"]`},
		"everybody":              {acls: []kmsg.DescribeACLsResponseResourceACL{allow("User:*", kmsg.ACLOperationWrite)}, want: `"principals":["User:*"]`},
		"no authorizer":          {code: kerr.SecurityDisabled, want: "everybody who reaches it"},
		"not ours to ask":        {code: kerr.ClusterAuthorizationFailed, want: "grant DESCRIBE"},
		"on the embedded broker": {code: kerr.SecurityDisabled, private: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, cluster := kfakeStore(t)
			cluster.ControlKey(int16(kmsg.DescribeACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				resp := kreq.ResponseKind().(*kmsg.DescribeACLsResponse)
				if c.code != nil {
					resp.ErrorCode = c.code.Code
				}
				r := kmsg.NewDescribeACLsResponseResource()
				r.ResourceType, r.ResourceName, r.ResourcePatternType, r.ACLs = kmsg.ACLResourceTypeTopic, txnlog.Topic, kmsg.ACLResourcePatternTypeLiteral, c.acls
				resp.Resources = append(resp.Resources, r)
				return resp, nil, true
			})
			var out bytes.Buffer
			s.open(t, func(o *Options) { o.Logger, o.Private = zerolog.New(&out), c.private })
			said := slices.DeleteFunc(strings.Split(strings.TrimSpace(out.String()), "\n"), func(line string) bool {
				return strings.Contains(line, producerExpiration) // kfake does not tell it
			})
			if c.want == "" && len(said) > 0 || c.want != "" && (len(said) != 1 || !strings.Contains(said[0], c.want)) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// What somebody else writes between two appends of ours is seen at the second.
func TestAStrangerIsSeenByTheOwner(t *testing.T) {
	s, _ := kfakeStore(t)
	var out bytes.Buffer
	l := s.open(t, func(o *Options) { o.Logger = zerolog.New(&out) })
	w, _ := logtest.Claim(t, l, 0)
	key, err := txnlog.AppendKey(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, w, logtest.Put("a", 1), logtest.Put("b", 1))
	mustAppend(t, w, logtest.Put("a", 2))
	if n := l.Stats().Intruders; n != 0 {
		t.Fatalf("%d records are somebody else's, and nobody has written", n)
	}
	for range 2 {
		s.inject(t, 0, txnlog.RawRecord{ProducerID: -1, ProducerEpoch: -1, Key: key})
	}
	mustAppend(t, w, logtest.Put("b", 2))
	if n := l.Stats().Intruders; n != 2 || !strings.Contains(out.String(), `"offset":4,"records":2`) {
		t.Errorf("%d records are somebody else's, want the 2 at offset 4:\n%s", n, out.String())
	}
}
