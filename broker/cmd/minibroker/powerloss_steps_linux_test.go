package main

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// begin makes what the other steps need. Before anything has been forced for a
// client, the coordinator's log is on its own.
func (l *powerLoad) begin() error {
	if err := l.session("global-0"); err != nil {
		return err
	}
	for _, t := range []struct {
		name       string
		partitions int32
		config     [2]string
	}{
		{"t", 3, [2]string{}},
		{"p", 2, [2]string{}},
		{"d", 1, [2]string{}},
		{"rolled", 1, [2]string{"segment.ms", "987654321"}},
	} {
		if err := l.createTopic(t.name, t.partitions, t.config); err != nil {
			return err
		}
	}
	return nil
}

// admin does one of the things that are not transactions.
func (l *powerLoad) admin() error {
	extra := fmt.Sprint("extra-", l.rng.IntN(3))
	partitions := l.w.facts["topic "+extra]
	switch l.rng.IntN(16) {
	case 0, 1:
		return l.produce("p", int32(l.rng.IntN(2)))
	case 2:
		return l.produce("rolled", 0)
	case 3:
		if partitions == "" {
			return l.createTopic(extra, 1, [2]string{"retention.ms", "987654321"})
		}
		return l.deleteTopic(extra)
	case 4:
		if partitions != "" {
			return l.produce(extra, 0)
		}
		return l.createTopic(extra, 1, [2]string{"retention.ms", "987654321"})
	case 5:
		if partitions == "1" {
			return l.createPartitions(extra, 2)
		}
		return l.topicConfig("p", "retention.ms", l.fresh(""))
	case 6:
		return l.brokerConfig("log.retention.ms", l.fresh(""))
	case 7:
		return l.acl()
	case 8:
		return l.user()
	case 9:
		return l.quota()
	case 10, 11:
		return l.commitOffset(fmt.Sprint("group-", l.rng.IntN(3)))
	case 12:
		return l.deleteOffset(fmt.Sprint("group-", l.rng.IntN(3)))
	case 13:
		return l.deleteGroup(fmt.Sprint("group-", l.rng.IntN(3)))
	case 14:
		return l.deleteRecords()
	default:
		return l.session(fmt.Sprint("global-", l.rng.IntN(2)))
	}
}

func (l *powerLoad) produce(topic string, partition int32) error {
	value := l.fresh("v")
	return l.do(step{name: "produce " + topic, change: func(w *world) {
		w.facts[fmt.Sprintf("record %s/%d %s", topic, partition, value)] = "there"
	}}, func() error { return l.c.write("", nil, topic, partition, value) })
}

func (l *powerLoad) createTopic(name string, partitions int32, config [2]string) error {
	return l.do(step{name: "create " + name, change: func(w *world) {
		w.facts["topic "+name] = fmt.Sprint(partitions)
		if config[0] != "" {
			w.facts["setting of topic "+name+" "+config[0]] = config[1]
		}
	}}, func() error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 10_000
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
		if config[0] != "" {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = config[0], &config[1]
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
		resp, err := oneRequest[*kmsg.CreateTopicsResponse](l.c, 5, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) createPartitions(name string, count int32) error {
	return l.do(step{name: "grow " + name, change: func(w *world) { w.facts["topic "+name] = fmt.Sprint(count) }}, func() error {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10_000
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = name, count
		req.Topics = append(req.Topics, t)
		resp, err := oneRequest[*kmsg.CreatePartitionsResponse](l.c, 3, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) deleteTopic(name string) error {
	return l.do(step{name: "delete " + name, change: func(w *world) {
		w.forget("topic " + name)
		w.forget("record " + name + "/")
		w.forget("setting of topic " + name + " ")
	}}, func() error {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames, req.TimeoutMillis = []string{name}, 10_000
		resp, err := oneRequest[*kmsg.DeleteTopicsResponse](l.c, 5, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) setting(kind kmsg.ConfigResourceType, resource, name, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, resource
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := oneRequest[*kmsg.IncrementalAlterConfigsResponse](l.c, 1, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	return err
}

func (l *powerLoad) brokerConfig(name, value string) error {
	return l.do(step{name: "broker setting", change: func(w *world) { w.facts["setting "+name] = value }},
		func() error { return l.setting(kmsg.ConfigResourceTypeBroker, "", name, value) })
}

func (l *powerLoad) topicConfig(topic, name, value string) error {
	return l.do(step{name: "topic setting", change: func(w *world) { w.facts["setting of topic "+topic+" "+name] = value }},
		func() error { return l.setting(kmsg.ConfigResourceTypeTopic, topic, name, value) })
}

func (l *powerLoad) acl() error {
	name := fmt.Sprint("resource-", l.rng.IntN(3))
	fact := "acl " + name
	if l.w.facts[fact] == "" {
		return l.do(step{name: "create " + fact, change: func(w *world) { w.facts[fact] = "there" }}, func() error {
			req := kmsg.NewPtrCreateACLsRequest()
			a := kmsg.NewCreateACLsRequestCreation()
			a.ResourceType, a.ResourceName, a.ResourcePatternType = kmsg.ACLResourceTypeTopic, name, kmsg.ACLResourcePatternTypeLiteral
			a.Principal, a.Host, a.Operation, a.PermissionType = "User:u", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, a)
			resp, err := oneRequest[*kmsg.CreateACLsResponse](l.c, 2, req)
			if err == nil {
				err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
			}
			return err
		})
	}
	return l.do(step{name: "delete " + fact, change: func(w *world) { w.forget(fact) }}, func() error {
		req := kmsg.NewPtrDeleteACLsRequest()
		a := kmsg.NewDeleteACLsRequestFilter()
		a.ResourceType, a.ResourceName, a.ResourcePatternType = kmsg.ACLResourceTypeTopic, &name, kmsg.ACLResourcePatternTypeLiteral
		a.Operation, a.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		req.Filters = append(req.Filters, a)
		resp, err := oneRequest[*kmsg.DeleteACLsResponse](l.c, 2, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) user() error {
	name := fmt.Sprint("user-", l.rng.IntN(3))
	fact := "user " + name
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	s := step{name: "delete " + fact, change: func(w *world) { w.forget(fact) }}
	if l.w.facts[fact] == "" {
		s = step{name: "create " + fact, change: func(w *world) { w.facts[fact] = "there" }}
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = name, 1, 4096, []byte("salt"), make([]byte, 32)
		req.Upsertions = append(req.Upsertions, u)
	} else {
		d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
		d.Name, d.Mechanism = name, 1
		req.Deletions = append(req.Deletions, d)
	}
	return l.do(s, func() error {
		resp, err := oneRequest[*kmsg.AlterUserSCRAMCredentialsResponse](l.c, 0, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) quota() error {
	l.n++
	value := float64(l.n)
	return l.do(step{name: "quota", change: func(w *world) { w.facts["quota u"] = fmt.Sprint(value) }}, func() error {
		req := kmsg.NewPtrAlterClientQuotasRequest()
		e, c, op := kmsg.NewAlterClientQuotasRequestEntry(), kmsg.NewAlterClientQuotasRequestEntryEntity(), kmsg.NewAlterClientQuotasRequestEntryOp()
		c.Type, c.Name = "user", kmsg.StringPtr("u")
		op.Key, op.Value = "producer_byte_rate", value
		e.Entity, e.Ops = append(e.Entity, c), append(e.Ops, op)
		req.Entries = append(req.Entries, e)
		resp, err := oneRequest[*kmsg.AlterClientQuotasResponse](l.c, 1, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Entries[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) commitOffset(group string) error {
	l.n++
	offset := int64(l.n)
	return l.do(step{name: "commit " + group, change: func(w *world) { w.facts["offset "+group+" p/0"] = fmt.Sprint(offset) }}, func() error {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = group, -1
		t, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = offset
		t.Topic, t.Partitions = "p", append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := oneRequest[*kmsg.OffsetCommitResponse](l.c, 8, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) deleteOffset(group string) error {
	if l.w.facts["offset "+group+" p/0"] == "" {
		return l.commitOffset(group)
	}
	return l.do(step{name: "delete offset of " + group, change: func(w *world) { w.forget("offset " + group + " ") }}, func() error {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		t, p := kmsg.NewOffsetDeleteRequestTopic(), kmsg.NewOffsetDeleteRequestTopicPartition()
		t.Topic, t.Partitions = "p", append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := oneRequest[*kmsg.OffsetDeleteResponse](l.c, 0, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		return err
	})
}

func (l *powerLoad) deleteGroup(group string) error {
	if l.w.facts["offset "+group+" p/0"] == "" {
		return l.commitOffset(group)
	}
	return l.do(step{name: "delete " + group, change: func(w *world) { w.forget("offset " + group + " ") }}, func() error {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{group}
		resp, err := oneRequest[*kmsg.DeleteGroupsResponse](l.c, 2, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
		}
		return err
	})
}

// deleteRecords writes two records to a partition and deletes the first or all.
func (l *powerLoad) deleteRecords() error {
	for range 2 {
		if err := l.c.write("", nil, "d", 0, l.fresh("v")); err != nil {
			return err
		}
	}
	low, err := l.c.start("d")
	if err != nil {
		return err
	}
	if low++; l.rng.IntN(3) == 0 {
		low = -1 // all of them
	}
	var resp *kmsg.DeleteRecordsResponse
	return l.do(step{name: "delete records", change: func(w *world) { w.facts["start d"] = fmt.Sprint(resp.Topics[0].Partitions[0].LowWatermark) }}, func() (err error) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 10_000
		t, p := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Offset = low
		t.Topic, t.Partitions = "d", append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err = oneRequest[*kmsg.DeleteRecordsResponse](l.c, 2, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		return err
	})
}

// session is a record in the coordinator's log.
func (l *powerLoad) session(id string) error {
	var resp *wire.InitGlobalTxnResponse
	return l.do(step{name: "session " + id, change: func(w *world) { w.facts["session "+id] = fmt.Sprint(resp.GlobalEpoch) }}, func() (err error) {
		req := wire.NewPtrInitGlobalTxnRequest()
		l.n++
		req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs = id, 60_000, []string{l.id}
		req.InstanceID[0], req.InstanceID[1] = byte(l.n), byte(l.n>>8)
		for {
			resp, err = oneRequest[*wire.InitGlobalTxnResponse](l.c, 0, req)
			if err != nil || !retriable(resp.ErrorCode) { // the node has only begun
				return errors.Join(err, wire.ErrorForCode(resp.ErrorCode))
			}
		}
	})
}
