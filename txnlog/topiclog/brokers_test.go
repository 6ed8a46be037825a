package topiclog

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// showsExpiration makes every broker answer with a code and, unless it is "", the
// setting.
func showsExpiration(c *kfake.Cluster, code int16, value string) {
	c.ControlKey(int16(kmsg.DescribeConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.DescribeConfigsRequest)
		if req.Resources[0].ResourceType != kmsg.ConfigResourceTypeBroker {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.Resources {
			got := kmsg.NewDescribeConfigsResponseResource()
			got.ResourceType, got.ResourceName, got.ErrorCode = r.ResourceType, r.ResourceName, code
			if value != "" {
				got.Configs = []kmsg.DescribeConfigsResponseResourceConfig{{Name: producerExpiration, Value: &value}}
			}
			resp.Resources = append(resp.Resources, got)
		}
		return resp, nil, true
	})
}

func TestABrokerThatForgetsTheFenceEarlyIsRefused(t *testing.T) {
	for value, refused := range map[string]bool{"600000": true, "86399999": true, "86400000": false, "604800000": false} {
		t.Run(value, func(t *testing.T) {
			s, c := kfakeStore(t, kfake.NumBrokers(3))
			showsExpiration(c, 0, value)
			var out bytes.Buffer
			o := s.options()
			o.Logger = zerolog.New(&out)
			l, err := Open(t.Context(), o)
			if err == nil {
				l.Close()
			}
			setting, ok := errors.AsType[*BrokerSettingError](err)
			switch {
			case !refused && (err != nil || strings.Contains(out.String(), producerExpiration)):
				t.Fatalf("refused or warned of: %v, %s", err, out.String())
			case refused && (!ok || setting.Have != value || !strings.Contains(err.Error(), producerExpiration+"="+value) ||
				!strings.Contains(err.Error(), "--add-config "+producerExpiration+"=86400000")):
				t.Fatalf("got %v, want the setting, its value and the remedy", err)
			}
		})
	}
}

func TestABrokerWhoseMemoryIsNotToldIsWarnedOfOnce(t *testing.T) {
	for name, show := range map[string]func(*kfake.Cluster){
		"no right":           func(c *kfake.Cluster) { showsExpiration(c, kerr.ClusterAuthorizationFailed.Code, "") },
		"not a setting":      func(c *kfake.Cluster) { showsExpiration(c, 0, "") },
		"not a number":       func(c *kfake.Cluster) { showsExpiration(c, 0, "a day") },
		"kfake, as it comes": func(*kfake.Cluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kfakeStore(t, kfake.NumBrokers(3))
			show(c)
			var out bytes.Buffer
			o := s.options()
			o.Logger = zerolog.New(&out)
			l, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			if got := out.String(); strings.Count(got, producerExpiration) != 1 || !strings.Contains(got, "DESCRIBE_CONFIGS") {
				t.Fatalf("the log is %q, want one warning that names the setting", got)
			}
		})
	}
}
