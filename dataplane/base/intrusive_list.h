// A doubly linked list whose nodes live in their owners (usually coroutine frames).
//
// Either side may be destroyed first: a node that dies leaves the list, a list that dies lets its
// nodes go. A node is on at most one list. Not thread-safe: one shard owns list and nodes.
#pragma once

#include "dataplane/base/assert.h"

namespace sarsen {

class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  bool linked() const { return next_ != nullptr; }
  void unlink() {
    if (!linked()) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = nullptr;
  }

 private:
  template <typename T>
  friend class IntrusiveList;
  ListNode* next_ = nullptr;
  ListNode* previous_ = nullptr;
};

// T derives from ListNode.
template <typename T>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.previous_ = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  // T may be incomplete here: a class can hold a list of a type that only its .cc defines.
  ~IntrusiveList() {
    while (head_.next_ != &head_) head_.next_->unlink();
    head_.next_ = head_.previous_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }
  T& front() { return static_cast<T&>(*head_.next_); }
  T& back() { return static_cast<T&>(*head_.previous_); }

  void push_back(T& item) {
    ListNode& node = item;
    SARSEN_ASSERT(!node.linked(), "a node is on at most one list");
    node.previous_ = head_.previous_;
    node.next_ = &head_;
    head_.previous_->next_ = &node;
    head_.previous_ = &node;
  }
  T& pop_front() {
    SARSEN_ASSERT(!empty(), "pop from an empty list");
    T& item = front();
    static_cast<ListNode&>(item).unlink();
    return item;
  }
  // Moves every node of `other` to the end of this list.
  void splice_back(IntrusiveList& other) {
    while (!other.empty()) push_back(other.pop_front());
  }
  // The item after `item`, or nullptr at the end.
  T* next(T& item) {
    ListNode* node = static_cast<ListNode&>(item).next_;
    return node == &head_ ? nullptr : static_cast<T*>(node);
  }

 private:
  ListNode head_;
};

}  // namespace sarsen
