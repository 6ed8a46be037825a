package client

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Keys of the requests that the dialer looks at (Kafka, ApiKeys.java).
const (
	keyApiVersions    int16 = 18
	keyInitProducerID int16 = 22
	keyEndTxn         int16 = 26
)

// The versions at both ends of the rewriting: kgo speaks the stable one, and
// only the next one has Enable2Pc (KIP-939).
const (
	initProducerIDStable int16 = 5
	initProducerID2PC    int16 = 6
)

const (
	sizeBytes = 4 // a frame begins with its length
	// maxRewritten bounds a response that has to be held in memory as a
	// whole. An ApiVersions response of Kafka 4.4 has under 2 KiB.
	maxRewritten = 1 << 20
)

var errShortFrame = errors.New("frame ends inside its header")

// request is one request frame, without its length, cut at the body.
type request struct {
	key, version  int16
	correlationID int32
	header        []byte // from the key on, up to the body
	body          []byte
}

// peekRequest reads what every request header begins with.
func peekRequest(frame []byte) (key, version int16, correlationID int32, err error) {
	if len(frame) < 8 {
		return 0, 0, 0, errShortFrame
	}
	return int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:])),
		int32(binary.BigEndian.Uint32(frame[4:])), nil
}

// parseRequest cuts a frame whose header is of version 1, or of version 2 when
// flexible.
func parseRequest(frame []byte, flexible bool) (request, error) {
	key, version, correlationID, err := peekRequest(frame)
	if err != nil {
		return request{}, err
	}
	b := kbin.Reader{Src: frame[8:]}
	b.NullableString() // client id, of int16 length also in header version 2
	if flexible {
		kmsg.SkipTags(&b)
	}
	if err := b.Complete(); err != nil {
		return request{}, fmt.Errorf("request header of key %d version %d: %w", key, version, err)
	}
	cut := len(frame) - len(b.Src)
	return request{key, version, correlationID, frame[:cut], frame[cut:]}, nil
}

// endTxnFlexible and initProducerIDFlexible are the first flexible versions.
func endTxnFlexible(version int16) bool         { return version >= 3 }
func initProducerIDFlexible(version int16) bool { return version >= 2 }

func parseInitProducerID(frame []byte, version int16) (request, *kmsg.InitProducerIDRequest, error) {
	r, err := parseRequest(frame, initProducerIDFlexible(version))
	if err != nil {
		return r, nil, err
	}
	body := kmsg.NewPtrInitProducerIDRequest()
	body.SetVersion(version)
	if err := body.ReadFrom(r.body); err != nil {
		return r, nil, fmt.Errorf("InitProducerId v%d: %w", version, err)
	}
	return r, body, nil
}

func parseEndTxn(frame []byte, version int16) (request, *kmsg.EndTxnRequest, error) {
	r, err := parseRequest(frame, endTxnFlexible(version))
	if err != nil {
		return r, nil, err
	}
	body := kmsg.NewPtrEndTxnRequest()
	body.SetVersion(version)
	if err := body.ReadFrom(r.body); err != nil {
		return r, nil, fmt.Errorf("EndTxn v%d: %w", version, err)
	}
	return r, body, nil
}

// upgradeInitProducerID turns a frame of InitProducerId v5 into one of v6 that
// asks for a transaction which only a commit or an abort ends (KIP-939,
// Enable2Pc). KeepPreparedTxn stays false: where it is accepted initialiseKeeping has asked.
// The result has its length in front.
func upgradeInitProducerID(r request, v5 *kmsg.InitProducerIDRequest) []byte {
	v6 := wire.NewPtrInitProducerIDRequestV6()
	v6.TransactionalID = v5.TransactionalID
	v6.TransactionTimeoutMillis = v5.TransactionTimeoutMillis
	v6.ProducerID = v5.ProducerID
	v6.ProducerEpoch = v5.ProducerEpoch
	v6.Enable2PC = true
	v6.UnknownTags = v5.UnknownTags

	out := append(make([]byte, sizeBytes, sizeBytes+len(r.header)+len(r.body)+2), r.header...)
	binary.BigEndian.PutUint16(out[sizeBytes+2:], uint16(initProducerID2PC))
	return withSize(v6.AppendTo(out))
}

// downgradeInitProducerID turns a response frame of InitProducerId v6, without
// its length, into one of v5 with its length: it drops the ongoing
// transaction's producer id and epoch, which only KeepPreparedTxn sets.
func downgradeInitProducerID(frame []byte) ([]byte, error) {
	b := kbin.Reader{Src: frame}
	correlationID := b.Int32()
	tags := kmsg.ReadTags(&b)
	if err := b.Complete(); err != nil {
		return nil, fmt.Errorf("response header of InitProducerId v6: %w", err)
	}
	v6 := wire.NewPtrInitProducerIDResponseV6()
	if err := v6.ReadFrom(b.Src); err != nil {
		return nil, fmt.Errorf("response of InitProducerId v6: %w", err)
	}
	v5 := kmsg.NewPtrInitProducerIDResponse()
	v5.SetVersion(initProducerIDStable)
	v5.ThrottleMillis = v6.ThrottleMillis
	v5.ErrorCode = v6.ErrorCode
	v5.ProducerID = v6.ProducerID
	v5.ProducerEpoch = v6.ProducerEpoch
	v5.UnknownTags = v6.UnknownTags

	out := make([]byte, sizeBytes, sizeBytes+len(frame))
	out = kbin.AppendInt32(out, correlationID)
	out = kbin.AppendUvarint(out, uint32(tags.Len()))
	out = tags.AppendEach(out)
	return withSize(v5.AppendTo(out)), nil
}

// responseFrame is the whole frame of a response that the dialer gives itself.
func responseFrame(correlationID int32, response kmsg.Response) []byte {
	out := kbin.AppendInt32(make([]byte, sizeBytes, 64), correlationID)
	if response.IsFlexible() {
		out = append(out, 0) // no tags in the header
	}
	return withSize(response.AppendTo(out))
}

// withSize fills in the length in front of a frame.
func withSize(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-sizeBytes))
	return frame
}

// initProducerIDMax finds the highest version of InitProducerId that a broker
// offers in its ApiVersions response; -1 when it says nothing of it. The
// header of that one response is never flexible, and a broker that does not
// know the request's version answers in version 0 (KIP-511).
func initProducerIDMax(frame []byte, version int16) int16 {
	if len(frame) < 6 {
		return -1
	}
	body := frame[4:]
	if unsupported := int16(35); int16(binary.BigEndian.Uint16(body)) == unsupported {
		version = 0
	}
	response := kmsg.NewPtrApiVersionsResponse()
	response.SetVersion(version)
	if err := response.ReadFrom(body); err != nil {
		return -1
	}
	for _, k := range response.ApiKeys {
		if k.ApiKey == keyInitProducerID {
			return k.MaxVersion
		}
	}
	return -1
}
