package broker_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// What each combination of flags shows in ApiVersions, and what it answers.
// "closed" is the end of the connection, as Kafka has it for a key or version
// that is not advertised.
//
//	versions  highest of InitProducerId and FindCoordinator; the coordinator's keys
//	v5        InitProducerId v5 with a minute, and with 2147483647 ms
//	v6        the same in v6, with Enable2Pc, and with KeepPreparedTxn
//	find      FindCoordinator for a global transactional id in v7 and in v6
//	gtc       the coordinator's five RPCs
const flagsMatrix = `
roles=broker     2pc=false unstable=false max=900000     | versions 5 6 none      | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 closed closed closed | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=false unstable=false max=2147483647 | versions 5 6 none      | v5 NONE NONE | v6 closed closed closed | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=false unstable=true  max=900000     | versions 6 6 none      | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 NONE TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=false unstable=true  max=2147483647 | versions 6 6 none      | v5 NONE NONE | v6 NONE TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=true  unstable=false max=900000     | versions 5 6 none      | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 closed closed closed | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=true  unstable=false max=2147483647 | versions 5 6 none      | v5 NONE NONE | v6 closed closed closed | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=true  unstable=true  max=900000     | versions 6 6 none      | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 NONE NONE NONE | find closed INVALID_REQUEST | gtc closed
roles=broker     2pc=true  unstable=true  max=2147483647 | versions 6 6 none      | v5 NONE NONE | v6 NONE NONE NONE | find closed INVALID_REQUEST | gtc closed
roles=broker,gtc 2pc=false unstable=false max=900000     | versions 5 7 1000-1004 | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 closed closed closed | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=false unstable=false max=2147483647 | versions 5 7 1000-1004 | v5 NONE NONE | v6 closed closed closed | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=false unstable=true  max=900000     | versions 6 7 1000-1004 | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 NONE TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=false unstable=true  max=2147483647 | versions 6 7 1000-1004 | v5 NONE NONE | v6 NONE TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=true  unstable=false max=900000     | versions 5 7 1000-1004 | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 closed closed closed | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=true  unstable=false max=2147483647 | versions 5 7 1000-1004 | v5 NONE NONE | v6 closed closed closed | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=true  unstable=true  max=900000     | versions 6 7 1000-1004 | v5 NONE INVALID_TRANSACTION_TIMEOUT | v6 NONE NONE NONE | find NONE INVALID_REQUEST | gtc answered
roles=broker,gtc 2pc=true  unstable=true  max=2147483647 | versions 6 7 1000-1004 | v5 NONE NONE | v6 NONE NONE NONE | find NONE INVALID_REQUEST | gtc answered
roles=gtc        2pc=-     unstable=-     max=-          | versions - 7 1000-1004 | v5 closed closed | v6 closed closed closed | find NONE INVALID_REQUEST | gtc answered
`

func TestFlagsMatrix(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(flagsMatrix)) {
		flags, want, _ := strings.Cut(strings.TrimSpace(line), "|")
		t.Run(strings.Join(strings.Fields(flags), " "), func(t *testing.T) {
			var roles, twoPC, unstable, maxTimeout string
			if _, err := fmt.Sscanf(flags, "roles=%s 2pc=%s unstable=%s max=%s", &roles, &twoPC, &unstable, &maxTimeout); err != nil {
				t.Fatal(err)
			}
			var n *node
			switch roles {
			case "gtc":
				n = startCoordinatorOnly(t)
			default:
				overrides := []string{
					"process.roles=" + roles, "transaction.two.phase.commit.enable=" + twoPC,
					"unstable.api.versions.enable=" + unstable, "transaction.max.timeout.ms=" + maxTimeout,
				}
				n = startNode(t, overrides, func(o *broker.Options) {
					if o.Config.Roles.GTC {
						o.Coordinator = echo
					}
				})
			}
			if got, row := n.flagsRow(t), strings.Join(strings.Fields(want), " "); got != row {
				t.Errorf("got  %s\nwant %s", got, row)
			}
		})
	}
}

// flagsRow asks the node everything that the matrix has.
func (n *node) flagsRow(t *testing.T) string {
	t.Helper()
	versions := ask[*kmsg.ApiVersionsResponse](t, n.dial(t), apiVersionsRequest(3))
	highest := map[int16]string{}
	var own []string
	for _, k := range versions.ApiKeys {
		highest[k.ApiKey] = fmt.Sprint(k.MaxVersion)
		if k.ApiKey >= wire.KeyInitGlobalTxn {
			own = append(own, fmt.Sprintf("%d:%d-%d", k.ApiKey, k.MinVersion, k.MaxVersion))
		}
	}
	keys := map[string]string{"": "none", "1000:0-0 1001:0-0 1002:0-0 1003:0-0 1004:0-0": "1000-1004"}[strings.Join(own, " ")]
	initHighest := highest[wire.KeyInitProducerID]
	if initHighest == "" {
		initHighest = "-"
	}
	v5 := func(id string, timeout int32) string {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, &id, timeout
		return n.codeOf(t, req)
	}
	v6 := func(id string, enable, keep bool) string {
		req := wire.NewPtrInitProducerIDRequestV6()
		req.TransactionalID, req.TransactionTimeoutMillis, req.Enable2PC, req.KeepPreparedTxn = &id, 60_000, enable, keep
		return n.codeOf(t, req)
	}
	find7 := wire.NewPtrFindCoordinatorRequest()
	find7.CoordinatorType, find7.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{"id"}
	find6 := kmsg.NewPtrFindCoordinatorRequest()
	find6.Version, find6.CoordinatorType, find6.CoordinatorKeys = 6, wire.CoordinatorTypeGlobalTransaction, []string{"id"}
	gtc := map[string]bool{}
	for _, api := range wire.APIs() {
		if api.Key >= wire.KeyInitGlobalTxn {
			req, _ := wire.RequestForKey(api.Key, api.MaxVersion)
			gtc[n.codeOf(t, req)] = true
		}
	}
	answered := "mixed"
	switch {
	case len(gtc) == 1 && gtc["closed"]:
		answered = "closed"
	case !gtc["closed"]:
		answered = "answered"
	}
	return fmt.Sprintf("versions %s %s %s | v5 %s %s | v6 %s %s %s | find %s %s | gtc %s",
		initHighest, highest[wire.KeyFindCoordinator], keys,
		v5("a", 60_000), v5("b", math.MaxInt32), v6("c", false, false), v6("d", true, false), v6("e", true, true),
		n.codeOf(t, find7), n.codeOf(t, find6), answered)
}

// codeOf sends a request on a connection of its own and names the error of the
// answer.
func (n *node) codeOf(t *testing.T, req kmsg.Request) string {
	t.Helper()
	c := n.dial(t)
	c.send(frameOf(req, 7))
	_, rest, err := c.receive()
	if err != nil {
		if isTimeout(err) {
			t.Fatalf("neither an answer nor the end: %v", err)
		}
		return "closed"
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(rest[1:]); err != nil {
		t.Fatal(err)
	}
	code := int16(0)
	switch r := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		code = r.ErrorCode
	case *wire.InitProducerIDResponseV6:
		code = r.ErrorCode
	case *wire.FindCoordinatorResponse:
		code = r.Coordinators[0].ErrorCode
	case *kmsg.FindCoordinatorResponse:
		code = r.Coordinators[0].ErrorCode
	}
	if code == 0 {
		return "NONE"
	}
	return kerr.TypedErrorForCode(code).Message
}

// The flags of the broker mean nothing on a node that is none, and the other
// way round: they are refused at the start.
func TestFlagsOfARoleThatTheNodeDoesNotHaveAreRefused(t *testing.T) {
	gtcOnly := []string{"process.roles=gtc", "gtc.clusters=us", "gtc.cluster.us.bootstrap.servers=us:1", "gtc.home.bootstrap.servers=home:1"}
	for _, k := range config.Keys() {
		var overrides []string
		switch k.Role {
		case config.BrokerRole:
			overrides = gtcOnly
		case config.GTCRole, config.GTCOnly:
			overrides = []string{"process.roles=broker"}
		case config.AnyRole:
			continue
		}
		name := strings.NewReplacer(config.Alias, "us", config.ListenerName, "plaintext").Replace(k.Name)
		value := k.Default
		if value == "" && len(k.Values) > 0 {
			value = k.Values[0]
		}
		if value == "" {
			value = "x"
		}
		_, err := config.Load("", append(overrides, name+"="+value))
		var refused *properties.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s on a node with %s: %v", name, overrides[0], err)
		}
	}
}
