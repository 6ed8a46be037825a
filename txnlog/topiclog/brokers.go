package topiclog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	producerExpiration = "producer.id.expiration.ms"
	// leastProducerExpiration is Kafka's default, a day. A writer keeps its
	// fence alive by the hour and stops after half a day without an
	// acknowledgement (maxSilence).
	leastProducerExpiration = 24 * 60 * 60 * 1000
)

// BrokerSettingError is a setting of a home broker under which it forgets too
// early who owns a partition.
type BrokerSettingError struct {
	Broker  int32
	Setting string
	Have    string
	Want    string
}

func (e *BrokerSettingError) Error() string {
	return fmt.Sprintf("topiclog: broker %d of the home cluster has %s=%s, and after that it forgets who owns a partition of the log, "+
		"so that one who owned it before can write decisions again; set it to %s or more: "+
		"kafka-configs.sh --alter --entity-type brokers --entity-default --add-config %s=%s",
		e.Broker, e.Setting, e.Have, e.Want, e.Setting, e.Want)
}

var errNotTold = errors.New("the broker does not tell it")

// checkBrokers refuses brokers that forget the fence early. The counter-example:
// G1 pauses with a batch in hand, G2 claims the partition under the next epoch
// and has nothing to write; with ten minutes the broker has forgotten both when
// G1 wakes up, and takes its batch, because of a producer that it does not know
// any epoch will do.
//
// What cannot be learned is reported and no reason to stand still: the default is
// a day, and a right on the whole cluster is much to ask for a look at it.
func checkBrokers(ctx context.Context, admin *kadm.Client, o *Options) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	brokers, err := admin.ListBrokers(ctx)
	var all kadm.ResourceConfigs
	if err == nil {
		all, err = admin.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...)
	}
	told := 0
	for _, b := range all {
		have, known := expirationOf(b)
		if !known {
			continue
		}
		told++
		if have < leastProducerExpiration {
			id, _ := strconv.ParseInt(b.Name, 10, 32)
			return &BrokerSettingError{
				Broker: int32(id), Setting: producerExpiration,
				Have: strconv.FormatInt(have, 10), Want: strconv.Itoa(leastProducerExpiration),
			}
		}
	}
	if err == nil && told < len(brokers) {
		err = errNotTold
	}
	if err != nil {
		o.Logger.Warn().Err(err).Str("setting", producerExpiration).Int("least", leastProducerExpiration).
			Msg("cannot tell whether every broker of the home cluster remembers who owns a partition for a day; " +
				"grant DESCRIBE_CONFIGS on the cluster to have it checked")
	}
	return nil
}

// expirationOf is what a broker has it set to.
func expirationOf(b kadm.ResourceConfig) (millis int64, known bool) {
	if b.Err != nil {
		return 0, false
	}
	for _, c := range b.Configs {
		if c.Key == producerExpiration {
			millis, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
			return millis, err == nil
		}
	}
	return 0, false
}
