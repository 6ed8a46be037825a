package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
)

// TestKafkaGoAgreesWithKafka: what Kafka's own protocol types have written is
// read as it was meant, and written back byte for byte, by kafka-go with the
// struct tags here.
func TestKafkaGoAgreesWithKafka(t *testing.T) {
	for name, slot := range map[string]protocol.ApiKey{
		"InitGlobalTxn": slotInit, "EndGlobalTxn": slotEnd, "DescribeGlobalTransactions": slotDescribe,
		"ListGlobalTransactions": slotList, "ResolveGlobalTransaction": slotResolve, "FindCoordinator": slotFindCoordinator,
	} {
		t.Run(name+"Request", func(t *testing.T) { agrees(t, name+"Request", slot, exchangeRequest) })
		t.Run(name+"Response", func(t *testing.T) { agrees(t, name+"Response", slot, exchangeResponse) })
	}
}

// exchange reads a body in the frame of a message and writes the message again.
type exchange func(slot protocol.ApiKey, version int16, body []byte) (message protocol.Message, again []byte, err error)

func agrees(t *testing.T, name string, slot protocol.ApiKey, do exchange) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../wire/testdata/golden", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Case, Hex string
		Version   int16
		Value     any
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases (%v)", len(cases), err)
	}
	for _, c := range cases {
		body, err := hex.DecodeString(c.Hex)
		if err != nil || c.Version != sentAs[slot].version {
			t.Fatalf("%s: version %d, want %d (%v)", c.Case, c.Version, sentAs[slot].version, err)
		}
		message, again, err := do(slot, c.Version, body)
		if err != nil {
			t.Errorf("%s: %v", c.Case, err)
			continue
		}
		if got, want := meaning(t, message), plain(c.Value); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read\n%v, want\n%v", c.Case, got, want)
		}
		// kafka-go has no empty string where null may be, and drops tagged
		// fields that it does not know.
		if exact := c.Case != "max" && c.Case != "tags"; exact && !bytes.Equal(again, body) {
			t.Errorf("%s: wrote\n%x, want\n%x", c.Case, again, body)
		}
	}
}

func exchangeRequest(slot protocol.ApiKey, version int16, body []byte) (protocol.Message, []byte, error) {
	header := binary.BigEndian.AppendUint16(nil, uint16(slot))
	header = binary.BigEndian.AppendUint16(header, uint16(version))
	header = append(header, 0, 0, 0, 7, 0, 1, 'x', 0) // correlation id, client id, no tagged field
	_, id, client, message, err := protocol.ReadRequest(bytes.NewReader(framed(header, body)))
	if err != nil {
		return nil, nil, err
	}
	var again bytes.Buffer
	err = protocol.WriteRequest(&again, version, id, client, message)
	return message, again.Bytes()[min(again.Len(), 4+len(header)):], err
}

func exchangeResponse(slot protocol.ApiKey, version int16, body []byte) (protocol.Message, []byte, error) {
	header := []byte{0, 0, 0, 7, 0}
	id, message, err := protocol.ReadResponse(bytes.NewReader(framed(header, body)), slot, version)
	if err != nil {
		return nil, nil, err
	}
	var again bytes.Buffer
	err = protocol.WriteResponse(&again, version, id, message)
	return message, again.Bytes()[min(again.Len(), 4+len(header)):], err
}

func framed(header, body []byte) []byte {
	return slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(header)+len(body))), header, body)
}

// meaning is a message by the names of its fields, as plain makes it.
func meaning(t *testing.T, message protocol.Message) any {
	t.Helper()
	raw, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return plain(v)
}

// plain takes away what kafka-go does not tell apart or has otherwise: null and
// empty, small letters in names, tagged fields, and a uuid.
func plain(v any) any {
	switch v := v.(type) {
	case string:
		if v != "" {
			return v
		}
		return nil
	case []any:
		var all []any
		for _, one := range v {
			all = append(all, plain(one))
		}
		if all == nil {
			return nil
		}
		return all
	case map[string]any:
		fields := make(map[string]any)
		for name, value := range v {
			switch id, _ := value.(string); {
			case name == "InstanceId":
				if raw, err := base64.RawURLEncoding.DecodeString(id); err == nil && len(raw) == 16 {
					fields["instanceidhigh"] = number(raw[:8])
					fields["instanceidlow"] = number(raw[8:])
				}
			case name != "_tags":
				fields[strings.ToLower(name)] = plain(value)
			}
		}
		return fields
	}
	return v
}

func number(raw []byte) json.Number {
	return json.Number(strconv.FormatInt(int64(binary.BigEndian.Uint64(raw)), 10))
}
