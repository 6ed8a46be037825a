package broker

import (
	"cmp"
	"iter"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxTimeoutName = "transaction.max.timeout.ms"
	twoPhaseName   = "transaction.two.phase.commit.enable"
)

// staticConfigs are the settings of the broker that kfake does not have or,
// for version 6 of InitProducerId, has with another value. Whether a cluster
// takes part in global transactions is read from them.
func (f *Front) staticConfigs(version int16) []kmsg.DescribeConfigsResponseResourceConfig {
	cfg := f.opts.Config
	config := func(name, value, def string, t kmsg.ConfigType) kmsg.DescribeConfigsResponseResourceConfig {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.ReadOnly = name, &value, true
		c.Source = kmsg.ConfigSourceStaticBrokerConfig
		if value == def {
			c.Source = kmsg.ConfigSourceDefaultConfig
		}
		c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
		if version >= 3 {
			c.ConfigType = t
		}
		return c
	}
	return []kmsg.DescribeConfigsResponseResourceConfig{
		config(maxTimeoutName, strconv.Itoa(int(cfg.TransactionMaxTimeoutMillis)), "900000", kmsg.ConfigTypeInt),
		config(twoPhaseName, strconv.FormatBool(cfg.TwoPhaseCommit), "false", kmsg.ConfigTypeBoolean),
	}
}

// static says that a setting is the front's and cannot be changed while the
// node runs, as in Kafka.
func static(name string) bool { return name == maxTimeoutName || name == twoPhaseName }

func (f *Front) routeDescribeConfigs(body *kmsg.DescribeConfigsRequest) plan {
	return plan{edit: editAs(f.showConfigs(body))}
}

// showConfigs puts the front's settings into the description of this broker.
func (f *Front) showConfigs(req *kmsg.DescribeConfigsRequest) func(*kmsg.DescribeConfigsResponse) kmsg.Response {
	return func(resp *kmsg.DescribeConfigsResponse) kmsg.Response {
		for i := range resp.Resources {
			r := &resp.Resources[i]
			if r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ErrorCode != 0 {
				continue
			}
			r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return static(c.Name) })
			if r.ResourceName == "" {
				continue // the cluster's defaults hold dynamic settings only
			}
			for _, c := range f.staticConfigs(resp.Version) {
				if asked(req, r.ResourceName, c.Name) {
					r.Configs = append(r.Configs, c)
				}
			}
		}
		return resp
	}
}

// asked says that a request for a broker wants to see one setting.
func asked(req *kmsg.DescribeConfigsRequest, broker, name string) bool {
	for _, r := range req.Resources {
		if r.ResourceType == kmsg.ConfigResourceTypeBroker && r.ResourceName == broker &&
			(len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, name)) {
			return true
		}
	}
	return false
}

// positive are settings that kfake hands to a ticker as they are. Zero would end
// the process, and the second one, being kept, every later start too.
var positive = []string{"log.cleaner.backoff.ms", "offsets.retention.check.interval.ms"}

// refuseSetting says why a setting of the broker must not reach kfake; empty
// when it may. A nil value takes the setting away.
func refuseSetting(name string, value *string) string {
	if static(name) {
		return "Cannot update these configs dynamically: " + name
	}
	if value == nil || !slices.Contains(positive, name) {
		return ""
	}
	if n, err := strconv.ParseInt(*value, 10, 32); err != nil || n < 1 {
		return name + " must be a number of milliseconds from 1 to 2147483647"
	}
	return ""
}

// refuseSettings says why settings of a resource must not be changed. In kfake a
// change of the front's own would have no effect or the wrong one, and one of the
// node's own topics could lose what is in them.
func (f *Front) refuseSettings(of kmsg.ConfigResourceType, name string, settings iter.Seq2[string, *string]) (code int16, why string) {
	switch of { //nolint:exhaustive // the others have no settings that matter here
	case kmsg.ConfigResourceTypeTopic:
		if f.internalTopic(name) {
			return kerr.InvalidTopicException.Code, nodesOwn
		}
	case kmsg.ConfigResourceTypeBroker:
		for setting, value := range settings {
			why = cmp.Or(why, refuseSetting(setting, value))
		}
		if why != "" {
			return kerr.InvalidRequest.Code, why
		}
	}
	return 0, ""
}

func (f *Front) guardIncrementalAlterConfigs(body *kmsg.IncrementalAlterConfigsRequest) refusal {
	return takeOut(&body.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) (kmsg.IncrementalAlterConfigsResponseResource, bool) {
		a, why := kmsg.NewIncrementalAlterConfigsResponseResource(), ""
		a.ResourceType, a.ResourceName, a.ErrorMessage = r.ResourceType, r.ResourceName, &why
		a.ErrorCode, why = f.refuseSettings(r.ResourceType, r.ResourceName, func(yield func(string, *string) bool) {
			for _, c := range r.Configs {
				if !yield(c.Name, c.Value) {
					return
				}
			}
		})
		return a, a.ErrorCode != 0
	}, func(r *kmsg.IncrementalAlterConfigsResponse) *[]kmsg.IncrementalAlterConfigsResponseResource {
		return &r.Resources
	})
}

func (f *Front) guardAlterConfigs(body *kmsg.AlterConfigsRequest) refusal {
	return takeOut(&body.Resources, func(r kmsg.AlterConfigsRequestResource) (kmsg.AlterConfigsResponseResource, bool) {
		a, why := kmsg.NewAlterConfigsResponseResource(), ""
		a.ResourceType, a.ResourceName, a.ErrorMessage = r.ResourceType, r.ResourceName, &why
		a.ErrorCode, why = f.refuseSettings(r.ResourceType, r.ResourceName, func(yield func(string, *string) bool) {
			for _, c := range r.Configs {
				if !yield(c.Name, c.Value) {
					return
				}
			}
		})
		return a, a.ErrorCode != 0
	}, func(r *kmsg.AlterConfigsResponse) *[]kmsg.AlterConfigsResponseResource { return &r.Resources })
}

// routeAlterConfigs changes the older request, which replaces all settings of a
// broker: the one that kfake needs for itself is put in again.
func (f *Front) routeAlterConfigs(_ *conn, req *request) plan {
	body := req.body.(*kmsg.AlterConfigsRequest)
	for i := range body.Resources {
		if r := &body.Resources[i]; r.ResourceType == kmsg.ConfigResourceTypeBroker {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			value := kfakeMaxTimeout(f.opts.Config)
			c.Name, c.Value = maxTimeoutName, &value
			r.Configs = append(r.Configs, c)
		}
	}
	return plan{sent: body, raw: req.withBody(body)}
}
