// Package attacktest makes requests that nobody sends in good faith, of every API
// key and version, for the tests that send them to a node.
package attacktest

import (
	"cmp"
	"hash/crc32"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Default is a request of a version, with what a field is by default.
func Default(key, version int16) kmsg.Request {
	if req, ours := wire.RequestForKey(key, version); ours {
		return req
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	return req
}

// Names are what a filled request names.
type Names struct {
	Topic, Group string
	TopicID      [16]byte
	TxnID        string // empty: none
	Producer     int64
	Epoch        int16
	Yes          bool   // the value of all that is yes or no
	Limit        string // of max.message.bytes; empty: 1
}

// Filled is a request of a version in which every field names something,
// and every array has one element.
func Filled(key, version int16, n Names) kmsg.Request {
	req := Default(key, version)
	n.fill(reflect.ValueOf(req).Elem(), "")
	req.SetVersion(version)
	return req
}

func (n Names) fill(v reflect.Value, field string) {
	switch v.Kind() { //nolint:exhaustive // the others are not in requests
	case reflect.Struct:
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				n.fill(v.Field(i), f.Name)
			}
		}
	case reflect.Pointer:
		if strings.HasPrefix(field, "Transaction") && n.TxnID == "" {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		n.fill(v.Elem(), field)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if field == "Records" {
				v.SetBytes(Batch(func(b *kmsg.RecordBatch) {
					b.ProducerID, b.ProducerEpoch = n.Producer, n.Epoch
					if n.TxnID != "" {
						b.Attributes = 0x10
					}
				}))
			}
			return
		}
		if field == "Assignment" {
			return // the broker's choice
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		n.fill(v.Index(0), strings.TrimSuffix(field, "s"))
	case reflect.Array:
		if strings.HasPrefix(field, "TopicID") {
			v.Set(reflect.ValueOf(n.TopicID).Convert(v.Type()))
		}
	case reflect.String:
		v.SetString(n.text(field))
	case reflect.Bool:
		v.SetBool(n.Yes)
	case reflect.Int8:
		switch field {
		case "ResourceType", "ResourcePatternType", "PermissionType", "Operation":
			v.SetInt(2) // a topic, a name, to allow, and all
			if field == "ResourcePatternType" || field == "PermissionType" {
				v.SetInt(3)
			}
		}
	case reflect.Int16:
		switch field {
		case "ProducerEpoch":
			v.SetInt(int64(n.Epoch))
		case "Acks":
			v.SetInt(-1)
		case "ReplicationFactor":
			v.SetInt(1)
		}
	case reflect.Int32:
		switch {
		case strings.HasSuffix(field, "Millis"):
			v.SetInt(1000)
		case field == "MaxBytes" || field == "PartitionMaxBytes":
			v.SetInt(1 << 20)
		case field == "Count" || field == "NumPartitions":
			v.SetInt(5)
		}
	case reflect.Int64:
		switch {
		case strings.HasPrefix(field, "ProducerID"):
			v.SetInt(n.Producer)
		case field == "Offset" || field == "Timestamp":
			v.SetInt(-1)
		}
	}
}

func (n Names) text(field string) string {
	switch {
	case strings.HasPrefix(field, "Topic") || field == "ResourceName" || field == "SubscribedTopicRegex":
		return n.Topic
	case strings.HasPrefix(field, "Transaction") || field == "GlobalTransactionalID":
		return n.TxnID
	case strings.HasPrefix(field, "Group") || strings.HasPrefix(field, "CoordinatorKey"):
		return n.Group
	case field == "Principal":
		return "User:x"
	case field == "Host":
		return "*"
	case field == "Name":
		return "max.message.bytes"
	case field == "Value":
		return cmp.Or(n.Limit, "1")
	}
	return "x"
}

// Batch is a record batch of one record, changed before its checksum is made.
func Batch(change func(*kmsg.RecordBatch)) []byte {
	b := kmsg.NewRecordBatch()
	b.Magic, b.NumRecords, b.ProducerID, b.FirstSequence = 2, 1, -1, 0
	r := kmsg.NewRecord()
	r.Value = []byte("v")
	record := r.AppendTo(nil)
	r.Length = int32(len(record) - 1)
	b.Records = r.AppendTo(nil)
	change(&b)
	return sealed(b)
}

// sealed is a batch with its length and checksum.
func sealed(b kmsg.RecordBatch) []byte {
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	raw = b.AppendTo(nil)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}
